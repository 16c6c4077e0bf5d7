[
{
    header => {
        "type"      => "KLOGGER_START",
        "serial"    => "0",
        "timestamp" => "1000000",
        "cpu"       => "-1",
    },
    "buffer_size" => "4194304",
    "kernel"      => "6.1.0",
},
{
    header => {
        "type"      => "PROCESS_EXISTS",
        "serial"    => "1",
        "timestamp" => "1000001",
        "cpu"       => "-1",
    },
    "pid"     => "10",
    "tgid"    => "10",
    "ppid"    => "1",
    "comm"    => "a \"shell\"",
    "command" => "sh -c \$HOME \@\x0a\xff",
},
{
    header => {
        "type"      => "SCHEDIN",
        "serial"    => "0",
        "timestamp" => "1000100",
        "cpu"       => "0",
    },
    "pid"  => "10",
    "prio" => "120",
    "tgid" => "10",
},
{
    header => {
        "type"      => "CALL",
        "serial"    => "0",
        "timestamp" => "1000250",
        "cpu"       => "1",
    },
    "from"  => "4294905872",
    "depth" => ["-1", "0", "300"],
    "note"  => "a,b",
},
{
    header => {
        "type"      => "PROCESS_FORK",
        "serial"    => "1",
        "timestamp" => "1000300",
        "cpu"       => "0",
    },
    "parent" => "10",
    "pid"    => "20",
    "tgid"   => "20",
    "comm"   => "child",
},
{
    header => {
        "type"      => "SCHEDOUT",
        "serial"    => "3",
        "timestamp" => "1000400",
        "cpu"       => "0",
    },
    "pid"   => "10",
    "prio"  => "120",
    "state" => "5122",
},
{
    header => {
        "type"      => "SCHEDIN",
        "serial"    => "2",
        "timestamp" => "1000410",
        "cpu"       => "0",
    },
    "pid"  => "20",
    "prio" => "-5",
    "tgid" => "20",
},
{
    header => {
        "type"      => "LOST",
        "serial"    => "1",
        "timestamp" => "1001000000",
        "cpu"       => "1",
    },
    "count" => "3",
    "since" => "1000500",
},
{
    header => {
        "type"      => "SCHEDOUT",
        "serial"    => "4",
        "timestamp" => "1001000000",
        "cpu"       => "1",
    },
    "pid"   => "20",
    "prio"  => "0",
    "state" => "0",
},
{
    header => {
        "type"      => "SCHEDIN",
        "serial"    => "4",
        "timestamp" => "2001000000",
        "cpu"       => "0",
    },
    "pid"  => "0",
    "prio" => "0",
    "tgid" => "0",
},
{
    header => {
        "type"      => "KLOGGER_FINISH",
        "serial"    => "2",
        "timestamp" => "2501000000",
        "cpu"       => "-1",
    },
},
];

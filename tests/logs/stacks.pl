[
{
    header => {
        "type"      => "WROTE",
        "serial"    => "0",
        "timestamp" => "1000000",
        "cpu"       => "0",
    },
    "tid"     => "10",
    "kernel"  => "7",
    "program" => "65537",
},
{
    header => {
        "type"      => "WROTE",
        "serial"    => "1",
        "timestamp" => "1000100",
        "cpu"       => "0",
    },
    "tid"     => "10",
    "kernel"  => "0",
    "program" => "65538",
},
{
    header => {
        "type"      => "WROTE",
        "serial"    => "2",
        "timestamp" => "1000200",
        "cpu"       => "0",
    },
    "tid"     => "10",
    "kernel"  => "0",
    "program" => "65539",
},
];

-- SPDX-License-Identifier: GPL-2.0-only
-- locking_wait: one row for each wait for a lock.
--
--   lock, tid, cpu      which lock; the thread that waited, or was interrupted by what waited;
--                       where it began
--   from_ns, to_ns      ns since the log's start
--   spin_ns             the part of it that was spent spinning
--   kind                spin lock, rwlock, mutex, rwsem, percpu rwsem, rt-mutex
--   stack               where the wait began; joins locking_place
--   open                true: still waiting when the log ended
--
-- A wait runs from its first LOCK_BEGIN to its LOCK_END. Each LOCK_BEGIN in between, which only
-- mutexes have, ends one phase and begins the next: spinning or asleep. A wait for a spin lock or
-- an rwlock has one LOCK_BEGIN, and cannot be given up; so a second one says that an end is
-- missing. Waits with events missing in between are left out. So are those for spin locks and
-- rwlocks that have no end: no thread spins until a log ends, but the kernel skips an end that
-- comes in an interrupt of our own program (probe_missed).

-- Who waits: a thread, with what interrupts it, for the two never wait for the same lock; or an
-- idle CPU.
CREATE TEMP MACRO locking_waiter(tid, cpu) AS CASE WHEN tid = 0 THEN -cpu::BIGINT - 1
    ELSE tid::BIGINT END;
CREATE TEMP MACRO locking_busy(kind) AS kind IN (1, 3, 5);

CREATE TEMP VIEW locking_step AS
SELECT locking_waiter(tid, cpu) AS waiter, lock, time, serial, cpu, tid, kind, stack
FROM LOCK_BEGIN
UNION ALL
SELECT locking_waiter(tid, cpu), lock, time, serial, cpu, tid, NULL, NULL FROM LOCK_END;

-- `first`: a wait begins here. `until`: the next step of the same waiter for the same lock.
CREATE TEMP TABLE locking_phase AS
WITH near AS (
    SELECT *, lag(kind) OVER w AS before, lag(time) OVER w IS NULL AS first_of_all,
        lead(time) OVER w AS until,
           lead(kind) OVER w AS after
    FROM locking_step WINDOW w AS (PARTITION BY waiter, lock ORDER BY time, serial)
), begun AS (
    SELECT *, kind IS NOT NULL AND (before IS NULL OR locking_busy(kind)
        OR locking_busy(before)) AS first FROM near
)
SELECT *, sum(first::INTEGER) OVER (PARTITION BY waiter, lock
    ORDER BY time, serial ROWS UNBOUNDED PRECEDING) AS number
FROM begun;

CREATE TEMP VIEW locking_whole AS
WITH wait AS (
    SELECT waiter, lock, number, min(time) AS from_ns,
           max(time) FILTER (kind IS NULL) AS end_ns, count(*) FILTER (kind IS NULL) AS ends,
           arg_min(tid, time) AS tid, arg_min(cpu, time) AS cpu,
           arg_min(kind, time) FILTER (kind IS NOT NULL) AS kind,
           arg_min(stack, time) FILTER (kind IS NOT NULL) AS stack,
           sum(until - time) FILTER (kind & 1 = 1
               AND (after IS NULL OR NOT locking_busy(kind))) AS spin_ns,
           bool_or(kind & 1 = 1 AND until IS NULL) AS open_spin, max(time) AS last_ns,
           max(number) OVER (PARTITION BY waiter, lock) AS last_number
    FROM locking_phase WHERE number > 0 GROUP BY waiter, lock, number
)
SELECT w.lock, w.tid, w.cpu, w.kind, w.stack, NULL AS place, w.from_ns,
       CASE WHEN w.ends > 0 THEN w.end_ns WHEN w.number = w.last_number AND r.finished
           AND NOT locking_busy(w.kind) THEN r.to_ns END AS to_ns,
       coalesce(w.spin_ns, 0) + CASE WHEN w.open_spin AND w.ends = 0 THEN r.to_ns - w.last_ns
           ELSE 0 END AS spin_ns,
       w.ends = 0 AS open, w.ends > 1 AS torn
FROM wait AS w, klogger.recording AS r;

CREATE TEMP TABLE locking_wait AS
SELECT lock, tid, cpu, stack, from_ns, to_ns, spin_ns, open,
       CASE WHEN kind IN (1) THEN 'spin lock' WHEN kind IN (3, 5) THEN 'rwlock'
           WHEN kind & 32 = 32 THEN 'mutex'
            WHEN kind & 16 = 16 THEN 'percpu rwsem' WHEN kind & 8 = 8 THEN 'rt-mutex'
                ELSE 'rwsem' END AS kind
FROM klogger.broken('locking_whole', ['LOCK_BEGIN', 'LOCK_END'])
WHERE to_ns IS NOT NULL AND NOT broken AND NOT torn;

-- Ends whose beginnings are not in the log, beginnings without ends, and waits with a gap in them.
CREATE TEMP TABLE locking_left_out AS
SELECT (SELECT count(*) FROM locking_whole) - (SELECT count(*) FROM locking_wait) AS waits,
       (SELECT count(*) FROM locking_phase WHERE number = 0)
       + (SELECT count(*) FROM locking_phase
           WHERE number > 0 AND kind IS NULL AND before IS NULL AND NOT first_of_all) AS ends;

DROP VIEW locking_whole;
DROP TABLE locking_phase;

-- Which lock a place in the kernel is about. The first frame of a stack that stands here names its
-- class: functions that use one lock, the innermost first. Names are those of Linux 6.1 to 6.18.
CREATE TEMP TABLE locking_class AS
SELECT unnest(functions) AS function, class FROM (VALUES
    ('device queue', ['__dev_queue_xmit', 'sch_direct_xmit', '__qdisc_run',
        'netif_receive_skb_internal', 'net_tx_action',
                      'enqueue_to_backlog', 'process_backlog']),
    ('socket', ['lock_sock_nested', 'release_sock', '__release_sock', 'tcp_v4_rcv', 'tcp_v6_rcv',
        '__lock_sock', 'lock_sock_fast',
                'sock_def_readable', 'sk_wait_data', 'unix_stream_sendmsg',
                'unix_stream_read_generic', 'inet_csk_accept',
                'inet_hash', '__inet_hash', '__inet_hash_connect', 'inet_csk_get_port',
                'tcp_set_state', 'inet_unhash',
                'inet_twsk_hashdance_schedule']),
    ('epoll', ['ep_poll_callback', 'ep_poll', 'do_epoll_wait', 'do_epoll_ctl', 'ep_send_events',
        'ep_scan_ready_list']),
    ('pipe', ['pipe_read', 'pipe_write', 'anon_pipe_read', 'anon_pipe_write', 'pipe_release',
        'pipe_poll', 'pipe_wait_readable',
              'pipe_wait_writable', 'fifo_open']),
    ('wait queue', ['__wake_up', '__wake_up_sync_key', '__wake_up_common_lock', 'prepare_to_wait',
        'prepare_to_wait_event',
                    'prepare_to_wait_exclusive', 'finish_wait', 'add_wait_queue',
                    'add_wait_queue_exclusive',
                    'remove_wait_queue', 'complete', 'complete_all', 'wait_for_completion',
                    'folio_wait_bit_common',
                    'folio_wake_bit']),
    ('page allocator', ['get_page_from_freelist', 'rmqueue', 'rmqueue_bulk', 'free_pcppages_bulk',
        'free_one_page',
                        'free_frozen_page_commit', 'free_frozen_pages', 'free_unref_page',
                        'free_unref_folios',
                        'free_unref_page_list', '__rmqueue_pcplist', '__drain_all_pages',
                        'drain_pages_zone']),
    ('slab', ['___slab_alloc', '__slab_free', 'get_partial_node', '__put_partials',
        'get_any_partial', '__pcs_replace_empty_main',
              '__pcs_replace_full_main', 'barn_get_empty_sheaf', 'deactivate_slab',
              'put_cpu_partial', '__unfreeze_partials']),
    ('page LRU', ['folio_lruvec_lock', 'folio_lruvec_lock_irq', 'folio_lruvec_lock_irqsave',
        'folio_batch_move_lru',
                  'lru_add_drain_cpu', 'folios_put_refs', '__page_cache_release', 'release_pages',
                  'shrink_inactive_list',
                  'shrink_active_list', 'pagevec_lru_move_fn']),
    ('page cache', ['__filemap_add_folio', 'filemap_add_folio', '__filemap_remove_folio',
        'delete_from_page_cache_batch',
                    'filemap_remove_folio', 'truncate_inode_pages_range', '__folio_start_writeback',
                    '__folio_end_writeback',
                    'folio_account_dirtied', '__folio_mark_dirty', 'shmem_add_to_page_cache',
                    'page_cache_ra_unbounded']),
    ('futex', ['futex_wake', 'futex_wait_setup', 'futex_wait', '__futex_wait', 'futex_q_lock',
        'futex_requeue', 'futex_wake_op',
               'futex_unqueue', 'futex_lock_pi', 'futex_hash', 'futex_wait_multiple_setup']),
    ('run queue', ['try_to_wake_up', 'raw_spin_rq_lock_nested', '__schedule', 'schedule_idle',
        'sched_balance_rq', 'load_balance',
                   'sched_balance_newidle', 'newidle_balance', 'sched_balance_softirq',
                   'sched_tick', 'scheduler_tick',
                   'sched_ttwu_pending', '__task_rq_lock', 'task_rq_lock', 'wake_up_new_task',
                   'sched_exec',
                   'update_blocked_averages', 'sched_balance_update_blocked_averages',
                   'rebalance_domains', 'ttwu_queue_wakelist',
                   'double_rq_lock', 'migration_cpu_stop', 'sched_setaffinity',
                   'set_cpus_allowed_ptr']),
    ('mmap lock', ['do_user_addr_fault', 'lock_mm_and_find_vma', 'vm_mmap_pgoff', '__vm_munmap',
        'do_mprotect_pkey', 'madvise_lock',
                   'do_madvise', 'dup_mmap', 'exit_mmap', 'exit_mm', 'brk', '__do_sys_brk',
                   '__x64_sys_brk', '__ia32_sys_brk',
                   '__arm64_sys_brk', '__do_sys_mremap', '__se_sys_mremap', '__x64_sys_mremap',
                   'do_mremap', 'mmap_read_lock_maybe_expand',
                   'upgrade_mmap_lock_carefully', 'setup_arg_pages', 'vma_start_read',
                   'lock_vma_under_rcu',
                   '__vma_start_write', 'mm_populate', '__mm_populate', 'proc_pid_cmdline_read',
                   'get_task_mm',
                   '__access_remote_vm', 'khugepaged', 'do_mlock', 'm_start', 'mlock_fixup',
                   'userfaultfd_ioctl',
                   'process_vm_rw_core', 'vms_gather_munmap_vmas', 'mmap_region']),
    ('page tables', ['__pte_offset_map_lock', 'pte_offset_map_lock', '__handle_mm_fault',
        'handle_mm_fault', 'do_anonymous_page',
                     'copy_pte_range', 'zap_pte_range', 'unmap_page_range', 'wp_page_copy',
                     '__pmd_alloc', '__pte_alloc', 'pmd_install',
                     'filemap_map_pages', 'finish_fault', 'move_page_tables', 'change_protection']),
    ('reverse map', ['unlink_anon_vmas', 'anon_vma_clone', 'anon_vma_fork', '__anon_vma_prepare',
        'unlink_file_vma',
                     'unlink_file_vma_batch_process', 'vma_link', 'vma_prepare', 'vma_complete',
                     'rmap_walk_anon', 'rmap_walk_file',
                     'i_mmap_lock_write', 'folio_lock_anon_vma_read', 'vma_link_file',
                     'unmap_mapping_range',
                     'free_pgtables']),
    ('dentry', ['d_alloc_parallel', 'd_alloc', 'd_lookup', '__d_lookup', 'lockref_get',
        'lockref_get_not_dead', 'lockref_put_return',
                'lockref_get_not_zero', 'dput', 'd_walk', '__d_add', 'd_add', 'd_instantiate',
                'd_delete', 'd_move', '__d_move',
                'shrink_dentry_list', 'd_invalidate', 'dget_parent', 'legitimize_path',
                '__legitimize_path',
                'd_splice_alias', 'list_lru_add', 'list_lru_del', 'lockref_put_or_lock']),
    ('directory', ['path_openat', 'open_last_lookups', 'lookup_slow', 'do_unlinkat',
        'filename_create', 'start_creating_path',
                   'iterate_dir', 'lock_rename', 'do_renameat2', 'do_rmdir', 'vfs_unlink',
                   'vfs_rename', 'start_dirop',
                   'start_removing_path', 'walk_component']),
    ('inode', ['inode_sb_list_add', 'inode_sb_list_del', 'evict', 'iput', 'new_inode',
        'iget_locked', '__mark_inode_dirty', 'find_inode',
               'inode_wait_for_writeback', 'generic_file_write_iter', 'ext4_buffered_write_iter',
               'ext4_file_write_iter',
               'ext4_dio_write_iter', 'btrfs_inode_lock', 'btrfs_buffered_write', 'xfs_ilock',
               'xfs_file_buffered_write',
               'shmem_file_write_iter', 'shmem_fallocate', 'notify_change', 'vfs_setxattr',
               'do_truncate', 'vfs_fallocate',
               'ext4_file_read_iter', 'ext4_sync_file', 'file_update_time', 'generic_file_llseek',
               'fuse_file_write_iter',
               'netfs_start_io_write', 'ovl_inode_lock', 'ovl_write_iter', 'vfs_utimes',
               'ext4_fallocate', 'inode_dio_wait']),
    ('journal', ['jbd2_journal_commit_transaction', 'start_this_handle', 'jbd2__journal_start',
        'jbd2_log_wait_commit', 'add_transaction_credits',
                 'jbd2_journal_stop', 'wait_transaction_locked']),
    ('block', ['blk_mq_submit_bio', 'blk_mq_dispatch_rq_list', 'blk_mq_get_tag',
        'blk_mq_sched_insert_requests', '__blk_mq_sched_dispatch_requests',
               'dd_insert_requests', 'dd_dispatch_request', 'virtio_queue_rq', 'blk_finish_plug',
               'bdi_dirty_limit', 'wb_workfn']),
    ('file table', ['alloc_fd', 'close_fd', 'file_close_fd', 'fd_install', 'f_getfl', 'fdget_pos',
        '__fdget_pos', 'dup_fd', 'do_dup2',
                    'ksys_dup3', 'expand_files', 'fput', '____fput']),
    ('signals', ['do_send_sig_info', '__lock_task_sighand', 'lock_task_sighand', 'get_signal',
        'sigprocmask', '__set_current_blocked',
                 'do_notify_parent', 'send_sigqueue', 'do_sigaction', 'send_signal_locked',
                 'signal_wake_up_state']),
    ('task list', ['copy_process', 'release_task', 'do_exit', 'exit_notify', 'wait_consider_task',
        'do_wait', '__do_wait', 'kernel_wait4',
                   'alloc_pid', 'free_pid', 'forget_original_parent', 'proc_pid_make_inode',
                   'do_prlimit', 'cgroup_post_fork', 'cgroup_can_fork',
                   'cgroup_threadgroup_change_begin', 'cgroup_attach_task', 'setpgid', 'exec_mmap',
                   'bprm_execve']),
    ('timer', ['lock_hrtimer_base', 'hrtimer_start_range_ns', 'hrtimer_interrupt',
        'lock_timer_base', '__mod_timer', 'mod_timer', 'run_timer_softirq',
               'tick_do_update_jiffies64', 'timer_delete', 'hrtimer_try_to_cancel',
               'update_wall_time', 'timekeeping_advance',
               'tick_handle_periodic', 'posix_timer_fn']),
    ('RCU', ['rcu_core', 'rcu_report_qs_rdp', 'note_gp_changes', 'rcu_gp_kthread', 'call_rcu',
        '__call_rcu_common', 'rcu_accelerate_cbs_unlocked',
             'force_qs_rnp', 'rcu_gp_cleanup', 'rcu_gp_init', 'kvfree_call_rcu',
             'synchronize_rcu_expedited', 'rcu_report_qs_rnp',
             'rcu_cleanup_callbacks', 'srcu_gp_start_if_needed']),
    ('work queue', ['__queue_work', 'queue_work_on', 'worker_thread', 'process_one_work',
        '__flush_work', 'queue_delayed_work_on']),
    ('memory control', ['try_charge_memcg', 'obj_cgroup_charge', 'drain_obj_stock',
        'refill_obj_stock', 'cgroup_rstat_flush', 'css_rstat_flush',
                        'cgroup_rstat_flush_locked', 'css_rstat_updated',
                        'mem_cgroup_css_rstat_flush']),
    ('vmalloc', ['alloc_vmap_area', 'free_vmap_area', '__purge_vmap_area_lazy',
        'free_vmap_area_noflush', 'find_vmap_area',
                 'remove_vm_area', 'vm_unmap_aliases', '__get_vm_area_node']),
    ('terminal', ['tty_write', 'n_tty_write', 'n_tty_read', 'pty_write',
        'tty_insert_flip_string_and_push_buffer', 'iterate_tty_write',
                  'tty_port_default_receive_buf', 'flush_to_ldisc', 'console_unlock',
                  'vprintk_emit']),
    ('tracing', ['bpf_ringbuf_output', '__bpf_ringbuf_reserve', 'bpf_get_stackid',
        '__bpf_get_stackid', 'trace_event_buffer_lock_reserve',
                 'ring_buffer_lock_reserve', 'bpf_prog_put', 'perf_event_ctx_lock_nested',
                 'perf_trace_init', 'tracepoint_probe_register',
                 'tracepoint_probe_unregister', 'bpf_trampoline_link_prog'])
) AS t(class, functions);

-- Frames of the lock itself, called by the function that takes it.
CREATE TEMP MACRO locking_is_lock(function) AS
    regexp_matches(function,
        '^_*(native_|pv_|raw_|hv_|kvm_)*'
        '(spin_lock|spin_trylock|queued_|read_lock|write_lock|mutex_|rwsem_|down_|rt_mutex|rwlock|'
        'ww_mutex|percpu_down|contention|res_spin|lockref_|rtlock|qspinlock|virt_spin|mcs_)')
    OR regexp_matches(function,
        '^_*(schedule|schedule_preempt_disabled|schedule_rtlock|'
        'preempt_schedule(_common|_irq|_notrace)?|cond_resched)$')
    OR regexp_matches(function, 'spin_lock_slowpath|_slowlock|^trace_|^percpu_(down|up|rwsem)');

-- What a stack says: the class; the function that wanted the lock, which is its first frame outside
-- of locks; and whether it is that of an interrupt or a softirq, if that is not deeper than the
-- stacks that are kept.
CREATE TEMP TABLE locking_place AS
WITH frame AS (
    SELECT id, generate_subscripts(frames, 1) AS depth,
        regexp_replace(unnest(frames), '\.(constprop|isra|part|cold|llvm).*$', '') AS function
    FROM klogger.stack
)
SELECT f.id AS stack, coalesce(arg_min(c.class, f.depth) FILTER (c.class IS NOT NULL),
    'other') AS class,
       coalesce(arg_min(f.function, f.depth) FILTER (NOT locking_is_lock(f.function)),
           'unknown') AS caller,
       bool_or(regexp_matches(f.function,
           '^(handle_softirqs|__do_softirq|run_ksoftirqd|.*sysvec_|.*common_interrupt|.*irq_exit|'
           'el[01]t?_.*(irq|interrupt)|.*exc_nmi)')) AS interrupt
FROM frame AS f LEFT JOIN locking_class AS c USING (function) GROUP BY f.id;

-- Waits with the class of their lock.
CREATE TEMP TABLE locking AS
SELECT w.*, coalesce(p.class, 'unknown') AS class, coalesce(p.caller, 'unknown') AS caller,
       coalesce(p.interrupt, false) AS interrupt,
       w.to_ns - w.from_ns AS ns, w.kind IN ('spin lock', 'rwlock') AS busy
FROM locking_wait AS w LEFT JOIN locking_place AS p USING (stack);

DROP TABLE locking_wait;

-- CPU time that there was in the recording.
CREATE TEMP TABLE locking_span AS
SELECT r.to_ns - r.from_ns AS ns, greatest(len(r.cpus), 1) AS cpus,
    (r.to_ns - r.from_ns) * greatest(len(r.cpus), 1) AS cpu_ns
FROM klogger.recording AS r;

CREATE TEMP VIEW locking_warning AS
SELECT format('Left out: {:,} waits whose end is not in the log, or that have a gap in them; {:,} '
              'ends without a beginning.',
              waits, ends) AS warning
FROM locking_left_out WHERE waits > 0 OR ends > 0.001 * (SELECT count(*) FROM locking)
UNION ALL
SELECT format('{:,} waits have no stack, and are counted as unknown.', count(*)) FROM locking
WHERE class = 'unknown'
HAVING count(*) > 0.001 * (SELECT count(*) FROM locking)
UNION ALL
SELECT 'No spin lock was seen contended. Either none was, or this machine spins where the '
       'tracepoint is not: a virtual '
       || 'machine without paravirtual locks, or few CPUs, whose first waiter spins silently.'
WHERE (SELECT count(*) FROM locking) > 0 AND NOT EXISTS (FROM locking WHERE kind = 'spin lock');

-- What the clients of pgbench have left, whose order does not matter.
select 'accounts', count(*), sum(abalance), md5(string_agg(aid || ':' || abalance, ',' order by aid)) from pgbench_accounts;
select 'tellers', count(*), sum(tbalance), md5(string_agg(tid || ':' || tbalance, ',' order by tid)) from pgbench_tellers;
select 'branches', count(*), sum(bbalance) from pgbench_branches;
select 'history', count(*), sum(delta), md5(string_agg(tid || ':' || aid || ':' || delta, ',' order by tid, aid, delta)) from pgbench_history;

-- By several processes, with a hash table in memory that they share.
set max_parallel_workers_per_gather = 2;
set parallel_setup_cost = 0;
set parallel_tuple_cost = 0;
set min_parallel_table_scan_size = 0;
set enable_mergejoin = off;
set enable_nestloop = off;
set work_mem = '16MB';
create temporary table plan (line text);
do $$
declare
    line text;
begin
    for line in execute 'explain (costs off) select sum(a.abalance + b.aid) from pgbench_accounts a join pgbench_accounts b on a.aid = b.aid - 1' loop
        insert into plan values (line);
    end loop;
end $$;
select 'parallel hash', count(*) from plan where line like '%Parallel Hash Join%';
select 'joined', sum(a.abalance + b.aid::bigint), count(*) from pgbench_accounts a join pgbench_accounts b on a.aid = b.aid - 1;

.print sqlite at work
PRAGMA journal_mode = WAL;
PRAGMA mmap_size = 33554432;
PRAGMA cache_size = -16000;
CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT NOT NULL, town INTEGER, born INTEGER);
CREATE TABLE town (id INTEGER PRIMARY KEY, name TEXT UNIQUE);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
	INSERT INTO town SELECT i, 'town-' || printf('%05d', i * 7919 % 100003) FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8000 * :scale)
	INSERT INTO person SELECT i, printf('%08x', i * 2654435761 % 4294967296), i * 31 % 211, 1900 + i * 17 % 120 FROM n;
COMMIT;
CREATE INDEX person_name ON person (name);
CREATE INDEX person_town ON person (town, born);
SELECT count(*), sum(born), min(name), max(name) FROM person;
SELECT town.name, count(*), avg(born) FROM person JOIN town ON town.id = person.town
	GROUP BY town.id ORDER BY count(*) DESC, town.name LIMIT 5;
SELECT p.name, q.name FROM person p JOIN person q ON q.id = p.born * 3 WHERE p.town = 17 ORDER BY p.name LIMIT 5;
SELECT name, row_number() OVER (PARTITION BY town ORDER BY born, id) FROM person ORDER BY id LIMIT 5;
UPDATE person SET born = born + 1 WHERE town IN (SELECT id FROM town WHERE name > 'town-5');
DELETE FROM person WHERE id % 5 = 0;
PRAGMA wal_checkpoint(TRUNCATE);
VACUUM;
PRAGMA integrity_check;
PRAGMA page_count;
SELECT count(*), sum(born), sum(length(name)) FROM person;

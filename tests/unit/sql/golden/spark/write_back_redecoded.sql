MERGE INTO `lake`.`air`.`flights`.`branch_attempt--p--main--1f` AS t
USING (SELECT * FROM `batchmerge_redecoded` WHERE `changed`) AS s
ON t.`batchNumber` = s.`batchNumber` AND t.`i` = s.`i`
  AND t.`batchNumber` BETWEEN 3 AND 5
WHEN MATCHED AND t.`error` IS NOT NULL THEN UPDATE SET
  t.`key` = s.`key`,
  t.`value` = s.`value`,
  t.`op` = s.`op`,
  t.`error` = CASE WHEN s.`error` IS NOT NULL THEN named_struct(
    'stage', s.`error`.`stage`, 'kind', s.`error`.`kind`, 'message', s.`error`.`message`,
    'key', t.`error`.`key`, 'value', t.`error`.`value`, 'headers', t.`error`.`headers`) END

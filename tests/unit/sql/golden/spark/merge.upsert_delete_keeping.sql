MERGE INTO `lake`.`air`.`flights`.`branch_attempt--p--main--1f` AS t
USING `batchmerge_changes` AS s
ON t.`carrier` = s.`carrier` AND t.`flight` = s.`flight` AND t.`carrier` BETWEEN CAST(:min_0 AS string) AND CAST(:max_0 AS string) AND t.`flight` BETWEEN CAST(:min_1 AS int) AND CAST(:max_1 AS int)
WHEN MATCHED AND s.`__op` = 'delete' THEN DELETE
WHEN MATCHED AND s.`__op` <> 'delete' THEN UPDATE SET
  t.`carrier` = s.`carrier`,
  t.`flight` = s.`flight`,
  t.`delay``s` = CASE WHEN s.`__kept`.`c1` THEN t.`delay``s` ELSE s.`delay``s` END,
  t.`version` = s.`version`,
  t.`__partition` = s.`__partition`,
  t.`body` = CASE WHEN s.`__kept`.`c0` THEN t.`body` ELSE s.`body` END
WHEN NOT MATCHED AND s.`__op` <> 'delete' THEN INSERT (
  `carrier`,
  `flight`,
  `delay``s`,
  `version`,
  `__partition`,
  `body`
) VALUES (
  s.`carrier`,
  s.`flight`,
  s.`delay``s`,
  s.`version`,
  s.`__partition`,
  s.`body`
)

MERGE INTO `lake`.`air`.`flights`.`branch_attempt--p--main--1f` AS t
USING `batchmerge_changes` AS s
ON t.`carrier` <=> s.`carrier` AND t.`flight` <=> s.`flight`

WHEN MATCHED AND s.`__op` = 'delete' THEN DELETE
WHEN MATCHED AND s.`__op` <> 'delete' THEN UPDATE SET
  t.`carrier` = s.`carrier`,
  t.`flight` = s.`flight`,
  t.`delay``s` = s.`delay``s`,
  t.`version` = s.`version`,
  t.`__partition` = s.`__partition`
WHEN NOT MATCHED AND s.`__op` <> 'delete' THEN INSERT (
  `carrier`,
  `flight`,
  `delay``s`,
  `version`,
  `__partition`
) VALUES (
  s.`carrier`,
  s.`flight`,
  s.`delay``s`,
  s.`version`,
  s.`__partition`
)

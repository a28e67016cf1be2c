MERGE INTO `lake`.`air`.`flights`.`branch_attempt--p--main--1f` AS t
USING `batchmerge_changes` AS s
ON t.`carrier` = s.`carrier` AND t.`flight` = s.`flight` AND t.`carrier` BETWEEN CAST(:min_0 AS string) AND CAST(:max_0 AS string) AND t.`flight` BETWEEN CAST(:min_1 AS int) AND CAST(:max_1 AS int)
WHEN MATCHED AND s.`__op` = 'delete' AND (t.`version` IS NULL OR s.`__order` >= t.`version`) THEN DELETE
WHEN MATCHED AND s.`__op` <> 'delete' AND (t.`version` IS NULL OR s.`__order` >= t.`version`) THEN UPDATE SET
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
WHEN NOT MATCHED BY SOURCE AND (t.`version` IS NULL OR t.`version` < 7) THEN DELETE

SELECT
  count_if(s.`__op` <> 'delete' AND NOT t.`__hit` <=> true) AS `inserted`,
  count_if(s.`__op` <> 'delete' AND t.`__hit` <=> true AND (t.`version` IS NULL OR s.`__order` >= t.`version`)) AS `updated`,
  count_if(s.`__op` = 'delete' AND t.`__hit` <=> true AND (t.`version` IS NULL OR s.`__order` >= t.`version`)) + (
    SELECT count(*) FROM `lake`.`air`.`flights`.`branch_attempt--p--main--1f` AS t
    LEFT ANTI JOIN `batchmerge_changes` AS s ON t.`carrier` = s.`carrier` AND t.`flight` = s.`flight` AND t.`carrier` BETWEEN CAST(:min_0 AS string) AND CAST(:max_0 AS string) AND t.`flight` BETWEEN CAST(:min_1 AS int) AND CAST(:max_1 AS int)
    WHERE (t.`version` IS NULL OR t.`version` < 7)
  ) AS `deleted`
FROM `batchmerge_changes` AS s
LEFT JOIN (
  SELECT `carrier`, `flight`, `version`, true AS `__hit`
  FROM `lake`.`air`.`flights`.`branch_attempt--p--main--1f`
) AS t
ON t.`carrier` = s.`carrier` AND t.`flight` = s.`flight` AND t.`carrier` BETWEEN CAST(:min_0 AS string) AND CAST(:max_0 AS string) AND t.`flight` BETWEEN CAST(:min_1 AS int) AND CAST(:max_1 AS int)

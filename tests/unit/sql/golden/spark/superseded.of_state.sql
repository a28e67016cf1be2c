SELECT
  `carrier`,
  `flight`,
  `delay``s`,
  `version`,
  `__partition`,
  `__op`, `__batch`, `__i`, `__kafka`,
  false AS `__rank_last`
FROM (SELECT 1)
UNION ALL
SELECT *, true AS `__rank_last` FROM (
SELECT
  `key`.`carrier` AS `carrier`,
  `key`.`flight` AS `flight`,
  `value`.`delay``s` AS `delay``s`,
  `value`.`version` AS `version`,
  `kafka`.`partition` AS `__partition`,
  'stays' AS `__op`,
  `batchNumber` AS `__batch`,
  `i` AS `__i`,
  `kafka` AS `__kafka`

FROM `lake`.`landing`.`flights_tmp` VERSION AS OF 42 AS r
LEFT SEMI JOIN (
  SELECT `batchNumber`, `i`, max(coalesce(`revision`, 0)) AS `last_row` FROM `lake`.`landing`.`flights_tmp` VERSION AS OF 42
  WHERE coalesce(`revision`, 0) <= :last AND `error` IS NULL AND `op` IN ('upsert', 'insert', 'update') GROUP BY `batchNumber`, `i`
) AS n ON r.`batchNumber` = n.`batchNumber` AND r.`i` = n.`i` AND coalesce(r.`revision`, 0) = n.`last_row`
LEFT ANTI JOIN (SELECT 1) AS x ON r.`batchNumber` = x.`__batch` AND r.`i` = x.`__i`
WHERE r.`error` IS NULL AND r.`batchNumber` BETWEEN :first AND :last

)

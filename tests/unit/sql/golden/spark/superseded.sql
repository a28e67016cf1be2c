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
  'delete' AS `__op`,
  `batchNumber` AS `__batch`,
  `i` AS `__i`,
  `kafka` AS `__kafka`

FROM `lake`.`landing`.`flights_tmp` VERSION AS OF 42 AS r
LEFT SEMI JOIN (
  SELECT DISTINCT `batchNumber`, `i` FROM `lake`.`landing`.`flights_tmp` VERSION AS OF 42
  WHERE `batchNumber` BETWEEN 6 AND 7
     OR `revision` BETWEEN 6 AND 7
) AS p ON r.`batchNumber` = p.`batchNumber` AND r.`i` = p.`i`
LEFT SEMI JOIN (
  SELECT `batchNumber`, `i`, max(`revision`) AS `newest` FROM `lake`.`landing`.`flights_tmp` VERSION AS OF 42
  WHERE `revision` <= :last AND `error` IS NULL GROUP BY `batchNumber`, `i`
) AS n ON r.`batchNumber` = n.`batchNumber` AND r.`i` = n.`i` AND coalesce(r.`revision`, 0) < n.`newest`
WHERE r.`error` IS NULL AND r.`op` IN ('upsert', 'insert', 'update', 'delete')

)
UNION ALL
SELECT *, false AS `__rank_last` FROM (
SELECT
  `key`.`carrier` AS `carrier`,
  `key`.`flight` AS `flight`,
  `value`.`delay``s` AS `delay``s`,
  `value`.`version` AS `version`,
  `kafka`.`partition` AS `__partition`,
  'blocked' AS `__op`,
  `batchNumber` AS `__batch`,
  `i` AS `__i`,
  `kafka` AS `__kafka`

FROM (
  SELECT r.*
  FROM `lake`.`landing`.`flights_tmp` VERSION AS OF 42 AS r
  LEFT ANTI JOIN (
    SELECT `batchNumber`, `i`, max(`revision`) AS `newest`
    FROM `lake`.`landing`.`flights_tmp` VERSION AS OF 42
    WHERE `revision` IS NOT NULL AND `revision` <= 7 AND `error` IS NULL
    GROUP BY `batchNumber`, `i`
  ) AS n
  ON r.`batchNumber` = n.`batchNumber` AND r.`i` = n.`i` AND coalesce(r.`revision`, 0) < n.`newest`
  WHERE coalesce(r.`revision`, 0) <= 7
) AS r
LEFT SEMI JOIN (
  SELECT DISTINCT `batchNumber`, `i` FROM `lake`.`landing`.`flights_tmp` VERSION AS OF 42
  WHERE `batchNumber` BETWEEN 6 AND 7
     OR `revision` BETWEEN 6 AND 7
) AS p ON r.`batchNumber` = p.`batchNumber` AND r.`i` = p.`i`
WHERE r.`error` IS NOT NULL AND r.`i` < 0 AND r.`key` IS NOT NULL
)

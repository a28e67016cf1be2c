SELECT
  `key`.`carrier` AS `carrier`,
  `key`.`flight` AS `flight`,
  `value`.`delay``s` AS `delay``s`,
  `value`.`version` AS `version`,
  `kafka`.`partition` AS `__partition`,
  `op` AS `__op`,
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
WHERE `batchNumber` BETWEEN :first AND :last
  AND `op` <> 'filtered'
  AND `error` IS NULL
  AND `key` IN (
    SELECT k.`key` FROM `lake`.`landing`.`flights_tmp` VERSION AS OF 42 AS k
    LEFT SEMI JOIN (
  SELECT DISTINCT `batchNumber`, `i` FROM `lake`.`landing`.`flights_tmp` VERSION AS OF 42
  WHERE `batchNumber` BETWEEN 6 AND 7
     OR `revision` BETWEEN 6 AND 7
) AS p
    ON k.`batchNumber` = p.`batchNumber` AND k.`i` = p.`i`
    WHERE coalesce(k.`revision`, 0) <= :last
  )

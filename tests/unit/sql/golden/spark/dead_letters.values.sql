SELECT
  `kafka`.`topic` AS `topic`,
  `kafka`.`partition` AS `partition`,
  `kafka`.`offset` AS `offset`,
  `kafka`.`timestamp` AS `timestamp`,
  `batchNumber` AS `batch`,
  `i`,
  `error`.`stage` AS `stage`,
  `error`.`kind` AS `kind`,
  `error`.`message` AS `message`
  , `error`.`key` AS `key`
  , `error`.`value` AS `value`
  , `error`.`headers` AS `headers`
FROM (
  SELECT r.*
  FROM `lake`.`landing`.`flights_tmp` AS r
  LEFT ANTI JOIN (
    SELECT `batchNumber`, `i`, max(`revision`) AS `newest`
    FROM `lake`.`landing`.`flights_tmp`
    WHERE `revision` IS NOT NULL
    GROUP BY `batchNumber`, `i`
  ) AS n
  ON r.`batchNumber` = n.`batchNumber` AND r.`i` = n.`i` AND coalesce(r.`revision`, 0) < n.`newest`
)
WHERE `error` IS NOT NULL AND `batchNumber` BETWEEN :first AND :last
ORDER BY `batchNumber`, `i`
LIMIT :most

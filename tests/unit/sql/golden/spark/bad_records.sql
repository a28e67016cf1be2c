SELECT
  `kafka`.`topic` AS `topic`,
  `kafka`.`partition` AS `partition`,
  `kafka`.`offset` AS `offset`,
  `error`.`stage` AS `stage`,
  `error`.`kind` AS `kind`,
  `error`.`message` AS `message`
FROM `lake`.`landing`.`flights_tmp`
WHERE `batchNumber` = :batch AND `error` IS NOT NULL
ORDER BY `i`
LIMIT :most

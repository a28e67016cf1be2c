SELECT
  `error`.`stage` AS `stage`,
  `error`.`kind` AS `kind`,
  count(*) AS `records`,
  min_by(concat(`kafka`.`topic`, '-', `kafka`.`partition`, '@', `kafka`.`offset`), struct(`batchNumber`, `i`)) AS `first`,
  min_by(`error`.`message`, struct(`batchNumber`, `i`)) AS `message`
FROM `lake`.`landing`.`flights_tmp`
WHERE `error` IS NOT NULL
GROUP BY 1, 2
ORDER BY 1, 2

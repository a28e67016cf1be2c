SELECT
  `error`.`stage` AS `stage`,
  `error`.`kind` AS `kind`,
  count(*) AS `records`,
  min_by(concat(`kafka`.`topic`, '-', `kafka`.`partition`, '@', `kafka`.`offset`), struct(`batchNumber`, `i`)) AS `first`,
  min_by(`error`.`message`, struct(`batchNumber`, `i`)) AS `message`
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
WHERE `error` IS NOT NULL
GROUP BY 1, 2
ORDER BY 1, 2

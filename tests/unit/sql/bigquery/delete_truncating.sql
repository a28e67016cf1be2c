MERGE `p.d.dest` AS `t`
USING (
  SELECT `p`.*
  FROM (
    SELECT `o`.*, MAX(IF(`o`.`value` IS NULL, `o`.`position`, NULL)) OVER (
      PARTITION BY `o`.`key`.`id`
    ) AS `deletedAt`
    , MAX(IF(`o`.`value` IS NULL, `o`.`orderBy`, NULL)) OVER (
      PARTITION BY `o`.`key`.`id`
    ) AS `deletedOrder`
    FROM (
      SELECT `d`.*, ROW_NUMBER() OVER (
        PARTITION BY `d`.`key`.`id`
        ORDER BY `d`.`orderBy`, `d`.`batchNumber`, `d`.`i`
      ) AS `position`
      FROM (
        SELECT `x`.*
        FROM (SELECT `s`.* FROM `p.d._dest_tmp_p_1_2` AS `s` WHERE `s`.`orderBy` >= @below) AS `x`
        WHERE (`x`.`batchNumber` BETWEEN @first AND @last OR (`x`.`batchNumber` < @first AND `x`.`value` IS NULL))
        QUALIFY ROW_NUMBER() OVER (PARTITION BY `x`.`batchNumber`, `x`.`i` ORDER BY `x`.`i`) = 1
      ) AS `d`
    ) AS `o`
  ) AS `p`
  WHERE (`p`.`deletedAt` IS NULL OR `p`.`position` >= `p`.`deletedAt`)
    AND `p`.`batchNumber` >= @first
) AS `batch`
ON `batch`.`value` IS NULL AND
  `t`.`id` = `batch`.`key`.`id`

WHEN MATCHED AND (`t`.`amount` IS NULL OR `batch`.`orderBy` >= `t`.`amount`) THEN DELETE
WHEN NOT MATCHED AND `batch`.`value` IS NOT NULL THEN INSERT (
  `id`,
  `name`,
  `amount`,
  `day`

) VALUES (
  `batch`.`key`.`id`,
  `batch`.`value`.`name`,
  `batch`.`value`.`amount`,
  `batch`.`value`.`day`

)
WHEN NOT MATCHED BY SOURCE AND (`t`.`amount` IS NULL OR `t`.`amount` < @below) THEN DELETE


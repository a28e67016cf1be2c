MERGE `p.d.dest` AS `t`
USING (
  WITH `after` AS (
  SELECT `p`.*
  FROM (
    SELECT `o`.*, MAX(IF(`o`.`value` IS NULL, `o`.`position`, NULL)) OVER (
      PARTITION BY `o`.`key`.`id`
    ) AS `deletedAt`
    FROM (
      SELECT `d`.*, ROW_NUMBER() OVER (
        PARTITION BY `d`.`key`.`id`
        ORDER BY `d`.`batchNumber`, `d`.`i`
      ) AS `position`
      FROM (
        SELECT `x`.*
        FROM `p.d._dest_tmp_p_1_2` AS `x`
        WHERE `x`.`batchNumber` BETWEEN @first AND @last
          AND `x`.`i` >= 0
        QUALIFY ROW_NUMBER() OVER (PARTITION BY `x`.`batchNumber`, `x`.`i` ORDER BY `x`.`i`) = 1
      ) AS `d`
    ) AS `o`
  ) AS `p`
  WHERE (`p`.`deletedAt` IS NULL OR `p`.`position` >= `p`.`deletedAt`)

  )
  SELECT `p`.*, `p`.`value`.`_topic` AS `taken_0`, `p`.`value`.`__partition` AS `taken_1`, `p`.`value`.`_offset` AS `taken_2`
  FROM `after` AS `p`
  LEFT JOIN (
    SELECT DISTINCT `had`.`_topic`, `had`.`__partition`, `had`.`_offset`, `had`.`_batch` IS NULL AS `of_any`, CASE `had`.`_topic` WHEN @recreated_0 THEN IF(`had`.`_batch` >= 7, 1, 0) WHEN @recreated_1 THEN IF(`had`.`_batch` >= 3, 1, 0) + IF(`had`.`_batch` >= 12, 1, 0) ELSE 0 END AS `incarnation`, TRUE AS `present`
    FROM `p.d.dest` AS `had`
  ) AS `h`
  ON `h`.`_topic` = `p`.`value`.`_topic` AND `h`.`__partition` = `p`.`value`.`__partition` AND `h`.`_offset` = `p`.`value`.`_offset`
    AND (`h`.`of_any` OR `h`.`incarnation` = CASE `p`.`value`.`_topic` WHEN @recreated_0 THEN IF(`p`.`value`.`_batch` >= 7, 1, 0) WHEN @recreated_1 THEN IF(`p`.`value`.`_batch` >= 3, 1, 0) + IF(`p`.`value`.`_batch` >= 12, 1, 0) ELSE 0 END)
  WHERE `p`.`value` IS NULL OR `h`.`present` IS NULL
  UNION ALL
  SELECT `batch`.*, `t`.`_topic` AS `taken_0`, `t`.`__partition` AS `taken_1`, `t`.`_offset` AS `taken_2`
  FROM `after` AS `batch`
  JOIN `p.d.dest` AS `t`
  ON `batch`.`value` IS NULL AND
  `t`.`id` = `batch`.`key`.`id`

  LEFT JOIN (
    SELECT DISTINCT `again`.`value`.`_topic` AS `_topic`, `again`.`value`.`__partition` AS `__partition`, `again`.`value`.`_offset` AS `_offset`, CASE `again`.`value`.`_topic` WHEN @recreated_0 THEN IF(`again`.`value`.`_batch` >= 7, 1, 0) WHEN @recreated_1 THEN IF(`again`.`value`.`_batch` >= 3, 1, 0) + IF(`again`.`value`.`_batch` >= 12, 1, 0) ELSE 0 END AS `incarnation`, TRUE AS `present`
    FROM `p.d._dest_tmp_p_1_2` AS `again`
    WHERE `again`.`value` IS NOT NULL AND `again`.`batchNumber` BETWEEN @first AND @last
  ) AS `h`
  ON `h`.`_topic` = `t`.`_topic` AND `h`.`__partition` = `t`.`__partition` AND `h`.`_offset` = `t`.`_offset`
    AND (`t`.`_batch` IS NULL OR `h`.`incarnation` = CASE `t`.`_topic` WHEN @recreated_0 THEN IF(`t`.`_batch` >= 7, 1, 0) WHEN @recreated_1 THEN IF(`t`.`_batch` >= 3, 1, 0) + IF(`t`.`_batch` >= 12, 1, 0) ELSE 0 END)
  WHERE `h`.`present` IS NULL AND `t`.`_topic` IS NOT NULL
  QUALIFY ROW_NUMBER() OVER (
    PARTITION BY `batch`.`key`.`id`, `t`.`_topic`, `t`.`__partition`, `t`.`_offset` ORDER BY `batch`.`i`
  ) = 1
) AS `batch`
ON `batch`.`value` IS NULL AND
  `t`.`id` = `batch`.`key`.`id`

  AND COALESCE(CAST(`t`.`_topic` AS STRING), '') = COALESCE(CAST(`batch`.`taken_0` AS STRING), '')
  AND COALESCE(CAST(`t`.`__partition` AS STRING), '') = COALESCE(CAST(`batch`.`taken_1` AS STRING), '')
  AND COALESCE(CAST(`t`.`_offset` AS STRING), '') = COALESCE(CAST(`batch`.`taken_2` AS STRING), '')
WHEN MATCHED THEN DELETE
WHEN NOT MATCHED AND `batch`.`value` IS NOT NULL THEN INSERT (
  `id`,
  `name`,
  `amount`,
  `day`,
  `_topic`,
  `__partition`,
  `_offset`,
  `_batch`

) VALUES (
  `batch`.`key`.`id`,
  `batch`.`value`.`name`,
  `batch`.`value`.`amount`,
  `batch`.`value`.`day`,
  `batch`.`value`.`_topic`,
  `batch`.`value`.`__partition`,
  `batch`.`value`.`_offset`,
  `batch`.`value`.`_batch`

)


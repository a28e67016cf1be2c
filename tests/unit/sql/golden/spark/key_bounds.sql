SELECT
  count(*) AS `changes`
  , CAST(min(`carrier`) AS STRING) AS `min_0`
  , CAST(max(`carrier`) AS STRING) AS `max_0`
  , count(`carrier`) AS `present_0`
  , CAST(min(`flight`) AS STRING) AS `min_1`
  , CAST(max(`flight`) AS STRING) AS `max_1`
  , count(`flight`) AS `present_1`
FROM `batchmerge_changes`

SELECT * EXCEPT (`__deleted`), `__deleted` IS NOT NULL AS `__key_deleted`
FROM (
  SELECT *,
    max(CASE WHEN `__op` = 'delete' THEN struct(`__batch`, `__i`) END) OVER (
      PARTITION BY `carrier`, `flight`
    ) AS `__deleted`
  FROM (SELECT 1)
)
WHERE `__deleted` IS NULL
   OR struct(`__batch`, `__i`) >= `__deleted`

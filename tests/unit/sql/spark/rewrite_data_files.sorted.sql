CALL `lake`.system.rewrite_data_files(
  table => '`lake`.`air`.`flights`',
  branch => 'main',
  strategy => 'sort',
  sort_order => '`id` ASC NULLS FIRST, `it\'s ``q``` ASC NULLS FIRST',
  options => map(
    'min-input-files', '5',
    'delete-file-threshold', '3',
    'target-file-size-bytes', '67108864',
    'remove-dangling-deletes', 'true'
  )
)

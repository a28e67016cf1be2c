CALL `lake`.system.rewrite_data_files(
  table => '`air`.`flights`',
  branch => 'main',
  strategy => 'sort',
  sort_order => '`id` ASC NULLS LAST, `it\'s ``q``` ASC NULLS LAST',
  options => map(
    'min-input-files', '5',
    'delete-file-threshold', '3',
    'target-file-size-bytes', '67108864',
    'remove-dangling-deletes', 'true'
  )
)

/** Paths and names of files of an allocation. */

/** Segments of a path in an allocation. */
export function fileSegmentsOf(path: string): readonly string[] {
  return path.split('/').filter((segment) => segment !== '')
}

/** Absolute in the allocation: `/alloc/logs`. */
export function filePath(segments: readonly string[]): string {
  return `/${segments.join('/')}`
}

/** The task and stream of a log file, such as `alloc/logs/web.stdout.0`. */
export function logOf(
  segments: readonly string[],
): { readonly task: string; readonly type: 'stdout' | 'stderr' } | undefined {
  const match = /^alloc\/logs\/([^/]+)\.(stdout|stderr)\.\d+$/.exec(segments.join('/'))
  const [, task, type] = match ?? []
  return task !== undefined && (type === 'stdout' || type === 'stderr') ? { task, type } : undefined
}

/** A file or directory of an allocation. */
export interface FilePlace {
  readonly allocation: string
  readonly segments: readonly string[]
  /** In the allocation, such as `/alloc/logs`. */
  readonly path: string
}

/** The setting `server.snapshot.path`. */

export interface BucketPath {
  readonly bucket: string
  /** Empty, or with a slash at its end. */
  readonly prefix: string
}

const SCHEME = 's3://'
/** Names of buckets by the rules of S3; keys of the characters that need no encoding. */
const BUCKET_PATH = /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:\/[A-Za-z0-9!_.*'()-]+)*)\/?$/

/** Undefined for a malformed path, and for a directory. */
export function bucketPathOf(path: string): BucketPath | undefined {
  const [, bucket, keys = ''] = BUCKET_PATH.exec(path) ?? []
  return bucket === undefined ? undefined : { bucket, prefix: keys === '' ? '' : `${keys.slice(1)}/` }
}

export function isBucketPath(path: string): boolean {
  return path.startsWith(SCHEME)
}

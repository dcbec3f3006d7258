/**
 * Scheduled snapshots in S3 or a compatible object store. An object appears under its name only when its upload is complete; it is then
 * read back and verified, and deleted if it is damaged.
 *
 * Credentials are those of the SDK's default chain (environment, shared files, instance or container role), so none is in the
 * configuration. The SDK takes 100 ms and 20 MB to load and is loaded with the first call.
 */
import { PassThrough, Readable } from 'node:stream'
import type { S3Client } from '@aws-sdk/client-s3'
import { Fault } from '../../../platform/errors.ts'
import { inspectSnapshot } from '../inspect.ts'
import {
  type SavedSnapshot,
  snapshotsAmong,
  type SnapshotSource,
  type SnapshotTarget,
  type StoredSnapshot,
} from './snapshot-target.ts'

/** 10,000 parts are the limit of S3: 160 GB. */
const PART_BYTES = 16 << 20
const PARTS_AT_ONCE = 2
const CONNECT_MS = 10_000
/** For the deletion of a damaged snapshot, also after an abort. */
const DELETE_MS = 10_000
/** Without a byte in either direction. */
const STALL_MS = 120_000

export interface S3Location {
  readonly bucket: string
  /** Empty, or with a slash at its end. */
  readonly prefix: string
  readonly region: string | undefined
  /** URL of a compatible store; undefined for AWS. */
  readonly endpoint: string | undefined
}

export class S3Target implements SnapshotTarget {
  readonly location: string
  readonly #at: S3Location
  readonly #clusterId: string
  #client: Promise<S3Client> | undefined

  constructor(at: S3Location, clusterId: string) {
    this.location = `s3://${at.bucket}/${at.prefix}`
    this.#at = at
    this.#clusterId = clusterId
  }

  async list(signal: AbortSignal): Promise<StoredSnapshot[]> {
    const { paginateListObjectsV2 } = await import('@aws-sdk/client-s3')
    const { bucket, prefix } = this.#at
    const names: string[] = []
    const pages = paginateListObjectsV2(
      { client: await this.#open() },
      { Bucket: bucket, Prefix: prefix },
      { abortSignal: signal },
    )
    for await (const { Contents = [] } of pages) {
      for (const { Key = '' } of Contents) names.push(Key.slice(prefix.length))
    }
    return snapshotsAmong(names, this.#clusterId)
  }

  async save(name: string, source: SnapshotSource, signal: AbortSignal): Promise<SavedSnapshot> {
    const { Upload } = await import('@aws-sdk/lib-storage')
    const body = new CountedBytes()
    // Errors are those of the two promises below, also before one of them listens.
    body.on('error', () => undefined)
    const object = this.#object(name)
    const upload = new Upload({
      client: await this.#open(),
      params: { ...object, Body: body, ContentType: 'application/gzip' },
      partSize: PART_BYTES,
      queueSize: PARTS_AT_ONCE,
    })
    const abort = () => void upload.abort()
    signal.addEventListener('abort', abort, { once: true })
    // A failure of one side destroys the body, which ends the other side.
    const fail = (error: unknown) => {
      body.destroy(error instanceof Error ? error : new Fault(String(error)))
      throw error
    }
    const ended = await Promise.allSettled([source(body, signal).catch(fail), upload.done().catch(fail)])
    signal.removeEventListener('abort', abort)
    const failed = ended.find((each) => each.status === 'rejected')
    if (failed) throw failed.reason
    try {
      return { meta: await this.#verify(name, signal), bytes: body.count }
    } catch (error) {
      // The caller gets the reason of the verification, also if the deletion fails.
      await this.remove(name, AbortSignal.timeout(DELETE_MS)).catch(() => undefined)
      throw error
    }
  }

  async remove(name: string, signal: AbortSignal): Promise<void> {
    const { DeleteObjectCommand } = await import('@aws-sdk/client-s3')
    const client = await this.#open()
    await client.send(new DeleteObjectCommand(this.#object(name)), { abortSignal: signal })
  }

  async #verify(name: string, signal: AbortSignal) {
    const { GetObjectCommand } = await import('@aws-sdk/client-s3')
    const client = await this.#open()
    const { Body } = await client.send(new GetObjectCommand(this.#object(name)), { abortSignal: signal })
    if (!(Body instanceof Readable)) throw new Fault('the object store returned no content')
    return (await inspectSnapshot(Body, { signal })).meta
  }

  #object(name: string) {
    return { Bucket: this.#at.bucket, Key: `${this.#at.prefix}${name}` }
  }

  #open(): Promise<S3Client> {
    this.#client ??= openClient(this.#at)
    return this.#client
  }
}

/** Compatible stores rarely resolve bucket names as hosts, and few know the SDK's additional checksums. */
async function openClient({ endpoint, region }: S3Location): Promise<S3Client> {
  const { S3Client: Client } = await import('@aws-sdk/client-s3')
  return new Client({
    ...(region !== undefined && { region }),
    ...(endpoint !== undefined && {
      endpoint,
      forcePathStyle: true,
      requestChecksumCalculation: 'WHEN_REQUIRED' as const,
      responseChecksumValidation: 'WHEN_REQUIRED' as const,
    }),
    requestHandler: { connectionTimeout: CONNECT_MS, socketTimeout: STALL_MS },
  })
}

class CountedBytes extends PassThrough {
  count = 0

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: (error: null, chunk: Buffer) => void): void {
    this.count += chunk.length
    done(null, chunk)
  }
}

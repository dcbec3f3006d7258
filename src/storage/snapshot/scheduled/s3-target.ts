/**
 * Scheduled snapshots in S3 or a compatible object store. An object appears under its name only when its upload is complete; it is then
 * read back and verified, and deleted if it is damaged.
 *
 * The store is not trusted: the bytes read back must be those that were sent, and lists and other responses have limits, so that a store
 * which sends without end, or whose prefix others fill, does not exhaust the memory of the server.
 *
 * Credentials are those of the SDK's default chain (environment, shared files, instance or container role), so none is in the
 * configuration. The SDK takes 100 ms and 20 MB to load and is loaded with the first call.
 */
import { createHash } from 'node:crypto'
import { PassThrough, pipeline, Readable } from 'node:stream'
import type { S3Client } from '@aws-sdk/client-s3'
import { Fault } from '../../../platform/errors.ts'
import { inspectSnapshot } from '../inspect.ts'
import { damagedSnapshot } from '../format/snapshot-archive.ts'
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
/** Of a list, which has several pages. */
const LIST_MS = 600_000
/** Below the prefix: thousands of years of daily snapshots. */
const OBJECTS_MAX = 1_000_000
/** Of every response except the content of an object. A page of a list has 1000 names of at most 1 KiB. */
const RESPONSE_BYTES_MAX = 16 << 20
/** Time limit for reading a snapshot back: ten times that of its upload, and at least this. */
const VERIFY_MS_MIN = 600_000
const VERIFY_FACTOR = 10

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
    let count = 0
    const pages = paginateListObjectsV2(
      { client: await this.#open() },
      { Bucket: bucket, Prefix: prefix },
      { abortSignal: AbortSignal.any([signal, AbortSignal.timeout(LIST_MS)]) },
    )
    for await (const { Contents = [] } of pages) {
      count += Contents.length
      if (count > OBJECTS_MAX) throw new Fault(`more than ${OBJECTS_MAX} objects below ${this.location}`)
      const page = Contents.map(({ Key = '' }) => Key.slice(prefix.length))
      names.push(...snapshotsAmong(page, this.#clusterId).map(({ name }) => name))
    }
    return snapshotsAmong(new Set(names), this.#clusterId)
  }

  async save(name: string, source: SnapshotSource, signal: AbortSignal): Promise<SavedSnapshot> {
    const { Upload } = await import('@aws-sdk/lib-storage')
    const body = new HashedBytes(Number.POSITIVE_INFINITY)
    const startedMs = performance.now()
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
      const verifyMs = Math.max(VERIFY_MS_MIN, VERIFY_FACTOR * (performance.now() - startedMs))
      const meta = await this.#verify(name, body, AbortSignal.any([signal, AbortSignal.timeout(verifyMs)]))
      return { meta, bytes: body.count }
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

  /** Also refuses an intact snapshot that is not the one that was sent. */
  async #verify(name: string, sent: HashedBytes, signal: AbortSignal) {
    const { GetObjectCommand } = await import('@aws-sdk/client-s3')
    const client = await this.#open()
    const { Body } = await client.send(new GetObjectCommand(this.#object(name)), { abortSignal: signal })
    if (!(Body instanceof Readable)) throw new Fault('the object store returned no content')
    const received = new HashedBytes(sent.count)
    pipeline(Body, received, () => undefined)
    const { meta } = await inspectSnapshot(received, { signal })
    if (received.digest() !== sent.digest())
      throw damagedSnapshot('the object store returned other bytes than were sent')
    return meta
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
  const client = new Client({
    ...(region !== undefined && { region }),
    ...(endpoint !== undefined && {
      endpoint,
      forcePathStyle: true,
      requestChecksumCalculation: 'WHEN_REQUIRED' as const,
      responseChecksumValidation: 'WHEN_REQUIRED' as const,
    }),
    requestHandler: { connectionTimeout: CONNECT_MS, socketTimeout: STALL_MS },
  })
  limitResponses(client)
  return client
}

/** The SDK reads responses, also those with an error, completely into memory. Only the content of an object is not limited here. */
function limitResponses({ config: { requestHandler } }: S3Client): void {
  const handle = requestHandler.handle.bind(requestHandler)
  requestHandler.handle = async (request, options) => {
    const result = await handle(request, options)
    const { response } = result
    const isContent =
      request.method === 'GET' && request.query['list-type'] === undefined && response.statusCode === 200
    if (isContent || !hasStream(response)) return result
    const limited = new HashedBytes(RESPONSE_BYTES_MAX)
    pipeline(response.body, limited, () => undefined)
    response.body = limited
    return result
  }
}

function hasStream(response: { readonly body?: unknown }): response is { body: Readable } {
  return response.body instanceof Readable
}

/** Passes bytes on, counts and hashes them. Fails beyond the limit. */
class HashedBytes extends PassThrough {
  count = 0
  readonly #hash = createHash('sha256')
  readonly #bytesMax: number
  #digest: string | undefined

  constructor(bytesMax: number) {
    super()
    this.#bytesMax = bytesMax
  }

  /** SHA-256 in hex. The last call for the bytes so far. */
  digest(): string {
    this.#digest ??= this.#hash.digest('hex')
    return this.#digest
  }

  override _transform(
    chunk: Buffer,
    _encoding: BufferEncoding,
    done: (error: Error | null, chunk?: Buffer) => void,
  ): void {
    this.count += chunk.length
    if (this.count > this.#bytesMax) {
      return done(new Fault(`the object store sent more than the expected ${this.#bytesMax} bytes`))
    }
    this.#hash.update(chunk)
    done(null, chunk)
  }
}

/** An S3-compatible store in memory for tests, which verifies signatures and body hashes and fails on demand. */
import { createHash, randomUUID } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { TestContext } from 'node:test'
import { verified } from './sigv4.ts'
import { AwsError } from './wire.ts'

export const OBJECT_KEY = { id: 'AKIASNAPSHOTTEST0001', secret: 'test-secret-of-the-object-store' }

export class ObjectStore {
  readonly url: string
  readonly bucket: string
  readonly objects = new Map<string, Buffer>()
  readonly uploads = new Map<string, Map<number, Buffer>>()
  /** Method and key of each request. */
  readonly journal: string[] = []
  /** Returns the error for a request, or undefined. */
  fault: (request: string) => AwsError | undefined = () => undefined
  /** Transforms the bytes of an object before they are stored. */
  stored: (bytes: Buffer) => Buffer = (bytes) => bytes

  private constructor(url: string, bucket: string) {
    this.url = url
    this.bucket = bucket
  }

  static async start(t: TestContext, bucket = 'backups'): Promise<ObjectStore> {
    const server = createServer()
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    t.after(() => {
      server.closeAllConnections()
      server.close()
    })
    const store = new ObjectStore(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, bucket)
    server.on('request', (request, response) => void store.#serve(request, response))
    return store
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      const chunks: Buffer[] = []
      for await (const chunk of request) chunks.push(chunk as Buffer)
      const body = Buffer.concat(chunks)
      this.#verify(request, body)
      this.#answer(request, body, response)
    } catch (error) {
      const { code, message, status } = error instanceof AwsError ? error : new AwsError('Internal', String(error), 500)
      response.writeHead(status, { 'content-type': 'application/xml' })
      response.end(`<Error><Code>${code}</Code><Message>${message}</Message></Error>`)
    }
  }

  #verify({ headers, method = '', url = '' }: IncomingMessage, body: Buffer): void {
    const payloadHash = String(headers['x-amz-content-sha256'])
    if (payloadHash !== 'UNSIGNED-PAYLOAD' && payloadHash !== createHash('sha256').update(body).digest('hex')) {
      throw new AwsError('XAmzContentSHA256Mismatch', `content hash ${payloadHash} does not match`, 400)
    }
    const [path, query = ''] = url.split('?')
    const sorted = query
      .split('&')
      .filter((each) => each !== '')
      .map((each) => (each.includes('=') ? each : `${each}=`))
      .toSorted()
      .join('&')
    const scope = verified(
      { method, url: `${path}?${sorted}`, headers, body: '', payloadHash },
      (keyId) => {
        if (keyId !== OBJECT_KEY.id) throw new AwsError('InvalidAccessKeyId', 'unknown access key', 403)
        return OBJECT_KEY.secret
      },
      Date.now(),
    )
    if (scope?.service !== 's3') throw new AwsError('AccessDenied', 'Access Denied', 403)
  }

  #answer({ method = '', url = '' }: IncomingMessage, body: Buffer, response: ServerResponse): void {
    const { pathname, searchParams } = new URL(url, this.url)
    const [, bucket = '', ...rest] = decodeURIComponent(pathname).split('/')
    const key = rest.join('/')
    if (bucket !== this.bucket) throw new AwsError('NoSuchBucket', `no bucket ${bucket}`, 404)
    this.journal.push(`${method} ${key}`)
    const fault = this.fault(`${method} ${key}`)
    if (fault) throw fault
    const xml = (text: string) => response.writeHead(200, { 'content-type': 'application/xml' }).end(text)
    const upload = searchParams.get('uploadId') ?? ''
    if (method === 'GET' && key === '') return void xml(this.#list(searchParams.get('prefix') ?? ''))
    if (method === 'GET') {
      const bytes = this.objects.get(key)
      if (!bytes) throw new AwsError('NoSuchKey', 'The specified key does not exist.', 404)
      return void response.writeHead(200, { 'content-length': bytes.length }).end(bytes)
    }
    if (method === 'PUT' && upload !== '') {
      this.uploads.get(upload)?.set(Number(searchParams.get('partNumber')), body)
      return void response.writeHead(200, { etag: '"part"' }).end()
    }
    if (method === 'PUT') {
      this.objects.set(key, this.stored(body))
      return void response.writeHead(200, { etag: '"whole"' }).end()
    }
    if (method === 'POST' && searchParams.has('uploads')) {
      const id = randomUUID()
      this.uploads.set(id, new Map())
      const names = `<Bucket>${bucket}</Bucket><Key>${key}</Key><UploadId>${id}</UploadId>`
      return void xml(`<InitiateMultipartUploadResult>${names}</InitiateMultipartUploadResult>`)
    }
    if (method === 'POST') {
      const parts = [...(this.uploads.get(upload) ?? [])].toSorted(([one], [other]) => one - other)
      this.objects.set(key, this.stored(Buffer.concat(parts.map(([, bytes]) => bytes))))
      this.uploads.delete(upload)
      return void xml('<CompleteMultipartUploadResult><ETag>"whole"</ETag></CompleteMultipartUploadResult>')
    }
    if (upload !== '') this.uploads.delete(upload)
    else this.objects.delete(key)
    response.writeHead(204).end()
  }

  #list(prefix: string): string {
    const keys = [...this.objects.keys()].filter((key) => key.startsWith(prefix)).toSorted()
    const contents = keys.map((key) => `<Contents><Key>${key}</Key></Contents>`).join('')
    return `<ListBucketResult><IsTruncated>false</IsTruncated>${contents}</ListBucketResult>`
  }
}

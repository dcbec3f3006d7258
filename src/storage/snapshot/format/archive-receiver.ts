/** Reads the container of a snapshot (`snapshot-archive.ts`) from a stream and verifies that it is complete. */
import { createHash } from 'node:crypto'
import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { createGunzip } from 'node:zlib'
import {
  type ArchiveMember,
  damagedSnapshot,
  decodeMeta,
  MEMBERS,
  readTarHeader,
  SMALL_MEMBER_BYTES_MAX,
  type SnapshotMeta,
} from './snapshot-archive.ts'
import { paddingOf, TAR_BLOCK_BYTES } from '../../../platform/tar.ts'

const CHUNK_BYTES = 512 << 10

/** Receives the bytes of the entries, in order. */
export interface EntrySink {
  write(piece: Buffer, at: number): Promise<void> | void
}

/** Parses an archive while it arrives: small members into memory, the entries into a sink. */
export class ArchiveReceiver {
  readonly #sink: EntrySink
  readonly #accept: (meta: SnapshotMeta) => void
  readonly #small = new Map<ArchiveMember, Buffer>()
  #meta: SnapshotMeta | undefined
  #buffered: Buffer = Buffer.alloc(0)
  /** The member that is being received and its missing bytes; undefined between members. */
  #current: { readonly name: ArchiveMember; left: number; padding: number; at: number } | undefined
  /** Number of members that were started. */
  #membersStarted = 0
  #isOver = false

  /** `accept` throws a Refusal for a snapshot that is not wanted, before its entries are received. */
  constructor(sink: EntrySink, accept: (meta: SnapshotMeta) => void = () => undefined) {
    this.#sink = sink
    this.#accept = accept
  }

  /** Rejects with a Refusal for a stream that is not a snapshot, or a damaged one. */
  async receive(input: Readable, signal?: AbortSignal): Promise<void> {
    const parse = (chunks: AsyncIterable<Buffer>) => this.#parse(chunks)
    try {
      await pipeline(input, createGunzip({ chunkSize: CHUNK_BYTES }), parse, { ...(signal && { signal }) })
    } catch (error) {
      const code = error instanceof Error && 'code' in error ? String(error.code) : ''
      throw code.startsWith('Z_') ? damagedSnapshot('it is truncated, or not a gzip archive') : error
    }
  }

  async #parse(chunks: AsyncIterable<Buffer>): Promise<void> {
    for await (const chunk of chunks) {
      this.#buffered = this.#buffered.length === 0 ? chunk : Buffer.concat([this.#buffered, chunk])
      while (await this.#step());
    }
  }

  /** Verifies that the archive is complete. */
  end(): { meta: SnapshotMeta; sha256: string } {
    const sums = this.#small.get('SHA256SUMS')
    const seal = this.#small.get('SHA256SUMS.sealed')
    const described = this.#small.get('meta.json')
    if (!this.#meta || !described || !sums || !seal || !this.#isOver) throw damagedSnapshot('it is truncated')
    const [, ofMeta, ofState] =
      /^([0-9a-f]{64}) {2}meta\.json\n([0-9a-f]{64}) {2}state\.bin\n$/.exec(sums.toString()) ?? []
    if (ofMeta !== sha256Of(described) || !ofState || seal.toString().trim() !== sha256Of(sums)) {
      throw damagedSnapshot('its checksums do not match')
    }
    return { meta: this.#meta, sha256: ofState }
  }

  /** Consumes a part of the buffered bytes. False when it needs more of them. */
  async #step(): Promise<boolean> {
    const current = this.#current
    if (this.#isOver) {
      if (this.#buffered.some((byte) => byte !== 0)) throw damagedSnapshot('it has trailing data')
      this.#buffered = Buffer.alloc(0)
      return false
    }
    if (!current) return this.#startMember()
    const piece = this.#buffered.subarray(0, current.left)
    if (piece.length > 0) {
      await this.#store(current.name, piece, current.at)
      current.left -= piece.length
      current.at += piece.length
      this.#buffered = this.#buffered.subarray(piece.length)
      return true
    }
    if (current.left > 0 || this.#buffered.length < current.padding) return false
    this.#buffered = this.#buffered.subarray(current.padding)
    this.#current = undefined
    if (current.name === 'meta.json') {
      this.#meta = decodeMeta(this.#small.get('meta.json') ?? Buffer.alloc(0))
      this.#accept(this.#meta)
    }
    return true
  }

  #startMember(): boolean {
    if (this.#buffered.length < TAR_BLOCK_BYTES) return false
    const header = readTarHeader(this.#buffered.subarray(0, TAR_BLOCK_BYTES))
    this.#buffered = this.#buffered.subarray(TAR_BLOCK_BYTES)
    const expected = MEMBERS[this.#membersStarted]
    if (!header) {
      this.#isOver = true
      return true
    }
    const { name, size } = header
    if (name !== expected) throw damagedSnapshot('it has unexpected members')
    if (expected === 'state.bin') {
      if (size !== this.#meta?.bytes) throw damagedSnapshot('the size of its entries does not match its metadata')
    } else if (size > SMALL_MEMBER_BYTES_MAX) throw damagedSnapshot(`${expected} is too large`)
    else this.#small.set(expected, Buffer.alloc(0))
    this.#membersStarted++
    this.#current = { name: expected, left: size, padding: paddingOf(size), at: 0 }
    return true
  }

  async #store(name: ArchiveMember, piece: Buffer, at: number): Promise<void> {
    if (name !== 'state.bin') {
      this.#small.set(name, Buffer.concat([this.#small.get(name) ?? Buffer.alloc(0), piece]))
      return
    }
    await this.#sink.write(piece, at)
  }
}

export function sha256Of(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex')
}

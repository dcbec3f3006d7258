/**
 * `fs/ls` and `fs/stat`: names, sizes, modes and content types. Only regular files that may be read are opened, for their
 * first bytes, so a stat never blocks on a pipe and never consumes bytes of it.
 */
import { yieldIfDue } from '../../platform/scheduler.ts'
import { closeSync, lstatSync, readdirSync, readSync } from 'node:fs'
import { isErrno, Refusal } from '../../platform/errors.ts'
import { schema } from '../../platform/schema.ts'
import { baseName, findFile, isReadable, refusalOf } from './alloc-files.ts'
import type { Allocation } from '../allocations/allocation.ts'
import { allocIdParam, handleAllocation, pathQuery } from '../allocations/allocation-operation.ts'
import { FILE_FACTS, FILE_LIST } from '../allocations/result-schemas.ts'
import { type PathHandle, openContent } from './open-beneath.ts'
import { type FileInfo, fileInfo } from './file-facts.ts'
import { fileContentType, SNIFF_BYTES } from './sniff.ts'

/** Entries of one directory, sorted by name. They come from lstat, so a symlink is listed as a symlink. */
async function listDirectory(allocation: Allocation, path: string): Promise<FileInfo[]> {
  const found = findFile(allocation, path, 'open')
  try {
    if (!found.stat.isDirectory()) throw new Refusal('invalid_request', `open ${path}: not a directory`)
    const directory = `/proc/self/fd/${found.fd}`
    const names = namesIn(directory)
    const infos: FileInfo[] = []
    for (const [index, name] of names.entries()) {
      const turn = index % LIST_SLICE === LIST_SLICE - 1 ? yieldIfDue() : undefined
      if (turn) await turn
      const info = entryInfo(directory, name)
      if (info) infos.push(info)
    }
    return infos
  } catch (error) {
    throw refusalOf(error, 'open', path)
  } finally {
    closeSync(found.fd)
  }
}

/** Sorted names; as bytes if one of them is not UTF-8, because its text would not name the file. */
function namesIn(directory: string): (string | Buffer)[] {
  const names = readdirSync(directory).sort((a, b) => (a < b ? -1 : 1))
  if (!names.some((name) => name.includes('\ufffd'))) return names
  return readdirSync(directory, { encoding: 'buffer' }).sort((a, b) => (a.toString() < b.toString() ? -1 : 1))
}

/** Entries read before the event loop is yielded. */
const LIST_SLICE = 200

/** Undefined if the entry was removed after the listing. */
function entryInfo(directory: string, name: string | Buffer): FileInfo | undefined {
  try {
    const path = typeof name === 'string' ? `${directory}/${name}` : Buffer.concat([Buffer.from(`${directory}/`), name])
    return fileInfo(name.toString(), lstatSync(path, { bigint: true }))
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return undefined
    throw error
  }
}

/** Attributes of one path; symlinks inside the allocation are followed. */
function statFile(allocation: Allocation, path: string): FileInfo {
  const found = findFile(allocation, path, 'stat')
  try {
    const name = baseName(allocation, path)
    return fileInfo(name, found.stat, fileContentType(name, firstBytes(allocation, found)))
  } catch (error) {
    throw refusalOf(error, 'stat', path)
  } finally {
    closeSync(found.fd)
  }
}

/** First bytes of a file for sniffing; undefined if it must not or cannot be read. */
function firstBytes(allocation: Allocation, found: PathHandle): Uint8Array | undefined {
  if (!isReadable(allocation, found)) return undefined
  let fd: number
  try {
    fd = openContent(found)
  } catch (error) {
    if (isErrno(error, 'EACCES', 'EPERM')) return undefined
    throw error
  }
  try {
    const head = Buffer.allocUnsafe(SNIFF_BYTES)
    return head.subarray(0, readSync(fd, head, 0, SNIFF_BYTES, 0))
  } finally {
    closeSync(fd)
  }
}

const pathInput = schema({ alloc_id: allocIdParam, path: pathQuery })

export const fsLs = handleAllocation(
  {
    name: 'host.fs_ls',
    summary: 'List a directory of an allocation',
    path: 'fs/ls/:alloc_id',
    input: pathInput,
    output: 'json',
    result: FILE_LIST,
    produces: 'text/plain',
    needs: ['read-fs'],
  },
  () => (allocation, input) => listDirectory(allocation, input.path),
)

export const fsStat = handleAllocation(
  {
    name: 'host.fs_stat',
    summary: 'Stat a file or directory of an allocation',
    path: 'fs/stat/:alloc_id',
    input: pathInput,
    output: 'json',
    result: FILE_FACTS,
    produces: 'text/plain',
    needs: ['read-fs'],
  },
  () => async (allocation, input) => statFile(allocation, input.path),
)

/**
 * The commit that this program was built from: the bundler replaces `OUTPOST_COMMIT`; in a checkout the files of `.git` are read, so
 * no command starts `git`. "unknown" where there is neither.
 */
import { readFileSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'

declare const OUTPOST_COMMIT: string | undefined

/** Characters of a commit that are shown. */
const SHOWN = 12
const HASH = /^[0-9a-f]{40,64}$/

let known: string | undefined

/** Twelve hexadecimal digits, followed by `-dirty` where the bundle was made of a changed checkout; "unknown" without a commit. */
export function buildCommit(): string {
  known ??= typeof OUTPOST_COMMIT === 'string' ? OUTPOST_COMMIT : checkedOutCommit(import.meta.dirname)
  return known
}

/** The commit of the checkout that `directory` is in. */
export function checkedOutCommit(directory: string): string {
  const git = gitDirectory(directory)
  if (git === undefined) return 'unknown'
  const head = textOf(join(git, 'HEAD')).trim()
  const ref = head.startsWith('ref: ') ? head.slice('ref: '.length) : undefined
  const hash = ref === undefined ? head : textOf(join(git, ref)).trim() || packedHash(git, ref)
  return HASH.test(hash) ? hash.slice(0, SHOWN) : 'unknown'
}

/** The `.git` beside the package.json of the program: a repository further up is another one. */
function gitDirectory(directory: string): string | undefined {
  for (let at = directory; ; at = dirname(at)) {
    if (textOf(join(at, 'package.json')).includes('"name": "outpost"')) {
      const git = join(at, '.git')
      return statSync(git, { throwIfNoEntry: false })?.isDirectory() ? git : undefined
    }
    if (at === dirname(at)) return undefined
  }
}

function packedHash(git: string, ref: string): string {
  const line = textOf(join(git, 'packed-refs'))
    .split('\n')
    .find((each) => each.endsWith(` ${ref}`))
  return line?.split(' ')[0] ?? ''
}

function textOf(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}

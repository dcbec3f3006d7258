/**
 * Writes the Debian package of a staged program: program in /usr/lib/outpost, units, users, directories, manual pages and
 * completion in the directories of Debian. Requires no Debian tools.
 */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { arOf } from './ar.ts'
import type { Architecture } from './architecture.ts'
import { compress } from './compress.ts'
import { completeTree, fileEntry, PROGRAM_MODE, readTree, type TreeEntry } from './file-tree.ts'
import type { CompletionScripts } from './completion.ts'
import type { ReleaseFacts } from './release.ts'
import { tarOf } from './tar.ts'

interface DebOptions extends ReleaseFacts {
  readonly architecture: Architecture
  /** Directory of the program as `stageProgram` writes it. */
  readonly program: string
  /** The checkout, for the files of deploy/debian. */
  readonly root: string
  readonly manual: readonly TreeEntry[]
  readonly completion: CompletionScripts
  readonly sbom: string
}

const PROGRAM = 'usr/lib/outpost'
const DOCS = 'usr/share/doc/outpost'
const UNITS = 'usr/lib/systemd/system'
/** Directory of the checkout in the units. */
const UNIT_PREFIX = '/opt/outpost/'
/** Parts of a staged program that the program itself runs. */
const RUN_PARTS = /^(?:bin|dist|node_modules)\/|^package\.json$/
/** Parts that only an installation without packages uses. */
const UNUSED_PARTS =
  /^(?:systemd\/(?:install\.sh|outpost[\w-]*\.service)|deploy\/(?:debian|container)\/|LICENSE$|completion\/|man\/|sbom\.)/
const CONFIG_MODE = 0o640
const SCRIPTS = ['postinst', 'prerm', 'postrm']
/** Node 24 needs glibc 2.28; dpkg reads Zstandard since Debian 12 and Ubuntu 21.10. */
const DEPENDS = 'libc6 (>= 2.28), libgcc-s1, libstdc++6 (>= 9), passwd, util-linux'
const KIBIBYTE = 1024

export function debOf(options: DebOptions): Buffer {
  const { architecture, releaseSeconds, version } = options
  const data = completeTree(dataEntries(options))
  const control = [
    fileEntry('control', controlText(version, architecture, data)),
    fileEntry('conffiles', conffiles(data)),
    fileEntry('md5sums', md5sums(data)),
    ...SCRIPTS.map((name) => fileEntry(name, readFileSync(join(options.root, 'deploy/debian', name)), PROGRAM_MODE)),
  ]
  return arOf(
    [
      { name: 'debian-binary', content: Buffer.from('2.0\n') },
      { name: 'control.tar.zst', content: compress(tarOf(control, './', releaseSeconds)) },
      { name: 'data.tar.zst', content: compress(tarOf(data, './', releaseSeconds)) },
    ],
    releaseSeconds,
  )
}

export function debName(version: string, architecture: Architecture): string {
  return `outpost_${version}_${architecture.debian}.deb`
}

function dataEntries({ program, root, manual, completion, sbom }: DebOptions): TreeEntry[] {
  const own = (name: string) => readFileSync(join(root, 'deploy/debian', name))
  const units = ['outpost.service', 'outpost-server.service'].map((name) => {
    const text = readFileSync(join(root, 'systemd', name), 'utf8')
    return fileEntry(`${UNITS}/${name}`, withPaths(text))
  })
  return [
    ...readTree(program, '').flatMap((entry): TreeEntry[] => {
      if (RUN_PARTS.test(entry.path)) return [{ ...entry, path: `${PROGRAM}/${entry.path}` }]
      if (UNUSED_PARTS.test(entry.path)) return []
      const path = `${DOCS}/${entry.path}`
      if (entry.type !== 'file' || !entry.path.endsWith('.service')) return [{ ...entry, path }]
      return [{ ...entry, path, content: Buffer.from(withPaths(entry.content.toString())) }]
    }),
    ...units,
    { path: 'usr/bin/outpost', type: 'symlink', target: '../lib/outpost/bin/outpost' },
    fileEntry('usr/lib/sysusers.d/outpost.conf', own('outpost.sysusers')),
    fileEntry('usr/lib/tmpfiles.d/outpost.conf', own('outpost.tmpfiles')),
    fileEntry('etc/outpost/agent.hcl', own('agent.hcl'), CONFIG_MODE),
    fileEntry('etc/outpost-server/server.hcl', own('server.hcl'), CONFIG_MODE),
    fileEntry('usr/share/bash-completion/completions/outpost', completion.bash),
    fileEntry('usr/share/zsh/vendor-completions/_outpost', completion.zsh),
    fileEntry('usr/share/fish/vendor_completions.d/outpost.fish', completion.fish),
    fileEntry(`${DOCS}/copyright`, readFileSync(join(root, 'LICENSE'))),
    fileEntry(`${DOCS}/sbom.cdx.json`, sbom),
    ...manual.map((entry) => ({
      ...entry,
      path: `usr/share/man/man1/${entry.path.slice(entry.path.lastIndexOf('/') + 1)}`,
    })),
  ]
}

/** The text of a unit with the paths of the package. */
function withPaths(unit: string): string {
  return unit.replaceAll(`${UNIT_PREFIX}docs/`, `/${DOCS}/docs/`).replaceAll(UNIT_PREFIX, `/${PROGRAM}/`)
}

function controlText(version: string, architecture: Architecture, data: readonly TreeEntry[]): string {
  const bytes = data.reduce((sum, entry) => sum + (entry.type === 'file' ? entry.content.length : 0), 0)
  return `Package: outpost
Version: ${version}
Architecture: ${architecture.debian}
Maintainer: outpost maintainers <outpost@localhost>
Installed-Size: ${Math.ceil(bytes / KIBIBYTE)}
Depends: ${DEPENDS}
Suggests: systemd
Section: admin
Priority: optional
Description: host agent and secrets server
 The agent serves logs, files and statistics of the allocations of its host over
 HTTP. The server forwards requests to the agents of all hosts and stores secrets.
`
}

function conffiles(data: readonly TreeEntry[]): string {
  return data
    .filter(({ path, type }) => type === 'file' && path.startsWith('etc/'))
    .map(({ path }) => `/${path}\n`)
    .join('')
}

/** What `dpkg --verify` compares. MD5 is the format of dpkg, not a protection. */
function md5sums(data: readonly TreeEntry[]): string {
  return data
    .flatMap((entry) => {
      if (entry.type !== 'file' || entry.path.startsWith('etc/')) return []
      return [`${createHash('md5').update(entry.content).digest('hex')}  ${entry.path}\n`]
    })
    .join('')
}

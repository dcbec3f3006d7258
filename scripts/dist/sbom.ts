/**
 * The software bill of materials of a package, CycloneDX 1.6 in JSON: Node and every npm package of the program with version,
 * license and hash from package-lock.json. Equal inputs give equal bytes.
 */
import { createHash } from 'node:crypto'

/** One package of `packages` in package-lock.json. */
export interface LockedPackage {
  readonly version?: string
  readonly integrity?: string
  readonly license?: string
  readonly dev?: boolean
  readonly devOptional?: boolean
  readonly os?: string | readonly string[]
  readonly cpu?: string | readonly string[]
  readonly dependencies?: Readonly<Record<string, string>>
  readonly optionalDependencies?: Readonly<Record<string, string>>
}

export interface Lock {
  readonly packages: Readonly<Record<string, LockedPackage>>
}

interface SbomOptions {
  readonly lock: Lock
  readonly version: string
  readonly architecture: string
  readonly releaseSeconds: number
}

const MODULES = 'node_modules/'
const MILLISECONDS = 1000
/** npm packages with the binary of Node, which is listed as what it contains. */
const NODE_PACKAGE = /^node_modules\/node-linux-/
/** An SPDX expression has operators; the ID of a license does not. */
const SPDX_EXPRESSION = / (?:AND|OR|WITH) /

export function sbomOf({ lock, version, architecture, releaseSeconds }: SbomOptions): string {
  const root = lock.packages['']
  if (!root) throw new Error('package-lock.json has no root package')
  const paths = Object.keys(lock.packages)
    .filter((path) => path !== '' && !isTypes(path) && isShipped(lock.packages[path], architecture))
    .toSorted()
  const self = `pkg:npm/outpost@${version}`
  const references = new Map([['', self], ...paths.map((path) => [path, purlOf(path, lock.packages[path])] as const)])
  const document = {
    $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    serialNumber: `urn:uuid:${uuidOf(JSON.stringify([lock, version, architecture]))}`,
    version: 1,
    metadata: {
      timestamp: new Date(releaseSeconds * MILLISECONDS).toISOString().replace('.000Z', 'Z'),
      component: {
        type: 'application',
        'bom-ref': self,
        name: 'outpost',
        version,
        licenses: licensesOf(root.license),
        purl: self,
        properties: [{ name: 'outpost:architecture', value: architecture }],
      },
    },
    components: uniqueBy(
      paths.map((path) => componentOf(path, lock.packages[path])),
      (component) => component['bom-ref'],
    ),
    dependencies: uniqueBy(
      [...references].map(([path, ref]) => ({ ref, dependsOn: dependenciesOf(lock, path, references) })),
      ({ ref }) => ref,
    ),
  }
  return `${JSON.stringify(document, null, 2)}\n`
}

/** Type declarations that packages depend on; they are not shipped. */
function isTypes(path: string): boolean {
  return nameOf(path).startsWith('@types/')
}

function isShipped(locked: LockedPackage | undefined, architecture: string): boolean {
  if (!locked || locked.dev === true || locked.devOptional === true) return false
  return allows(locked.os, 'linux') && allows(locked.cpu, architecture)
}

function allows(names: string | readonly string[] | undefined, name: string): boolean {
  return names === undefined || [names].flat().includes(name)
}

function nameOf(path: string): string {
  return path.slice(path.lastIndexOf(MODULES) + MODULES.length)
}

function purlOf(path: string, locked: LockedPackage | undefined): string {
  const version = locked?.version ?? ''
  if (NODE_PACKAGE.test(path)) return `pkg:generic/node@${version}`
  return `pkg:npm/${nameOf(path).replace('@', '%40')}@${version}`
}

function componentOf(path: string, locked: LockedPackage | undefined) {
  const purl = purlOf(path, locked)
  const version = locked?.version ?? ''
  const hashes = hashesOf(locked?.integrity)
  const known = { version, licenses: licensesOf(locked?.license), purl, ...(hashes.length > 0 ? { hashes } : {}) }
  if (NODE_PACKAGE.test(path)) {
    const cpe = `cpe:2.3:a:nodejs:node.js:${version}:*:*:*:*:*:*:*`
    return { type: 'platform', 'bom-ref': purl, name: 'node', cpe, ...known }
  }
  const [group, name] = nameOf(path).includes('/') ? nameOf(path).split('/') : [undefined, nameOf(path)]
  return { type: 'library', 'bom-ref': purl, ...(group === undefined ? {} : { group }), name, ...known }
}

function licensesOf(license: string | undefined) {
  if (license === undefined) return []
  return SPDX_EXPRESSION.test(license) ? [{ expression: license }] : [{ license: { id: license } }]
}

/** npm writes `sha512-<base64>`; an entry may have several, separated by spaces. */
function hashesOf(integrity: string | undefined) {
  return (integrity ?? '').split(' ').flatMap((each) => {
    const [, digest] = /^sha512-(.+)$/.exec(each) ?? []
    return digest === undefined ? [] : [{ alg: 'SHA-512', content: Buffer.from(digest, 'base64').toString('hex') }]
  })
}

/** References of the direct dependencies, found as Node finds them: in the closest `node_modules` above. */
function dependenciesOf(lock: Lock, path: string, references: ReadonlyMap<string, string>): string[] {
  const locked = lock.packages[path]
  const names = Object.keys({ ...locked?.dependencies, ...locked?.optionalDependencies })
  const found = names.flatMap((name) => {
    for (let at = path; ; at = at.slice(0, Math.max(0, at.lastIndexOf(`/${MODULES}`)))) {
      const reference = references.get(at === '' ? `${MODULES}${name}` : `${at}/${MODULES}${name}`)
      if (reference !== undefined) return [reference]
      if (at === '') return []
    }
  })
  return [...new Set(found)].toSorted()
}

/** A UUID of version 8 made of a hash: the same content has the same serial number. */
function uuidOf(text: string): string {
  const bytes = createHash('sha256').update(text).digest().subarray(0, 16)
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x80
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80
  const hex = bytes.toString('hex')
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-')
}

function uniqueBy<T>(items: readonly T[], keyOf: (item: T) => string): T[] {
  return [...new Map(items.map((item) => [keyOf(item), item])).values()]
}

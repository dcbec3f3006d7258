/**
 * Builds the packages of a release into dist/packages, without a network: for each architecture a tarball, a Debian package and a
 * bill of materials, and for all of them SHA256SUMS. The same commit gives the same bytes.
 *
 *     npm run dist [-- ARCHITECTURE …]       all architectures unless given: x64, arm64
 *
 * OUTPOST_DIST_KEY_FILE names an Ed25519 key in PEM format, which signs SHA256SUMS. Exit code 3: the packages for the architectures
 * whose Node is installed were built, the others were not.
 */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { ARCHITECTURES, platformModules } from './architecture.ts'
import { checksums, type NamedContent, sha256, signatureOf } from './checksums.ts'
import { buildPackages } from './packages.ts'
import { releaseFacts } from './release.ts'

const ROOT = resolve(import.meta.dirname, '../..')
const PACKAGES = join(ROOT, 'dist/packages')
const EXIT_INCOMPLETE = 3
const MEBIBYTE = 1024 ** 2

function mebibytes(content: Buffer): string {
  return (content.length / MEBIBYTE).toFixed(1)
}

function print(line: string): void {
  process.stdout.write(`${line}\n`)
}

async function main(given: readonly string[]): Promise<number> {
  const unknown = given.find((name) => !ARCHITECTURES.some((each) => each.name === name))
  if (unknown !== undefined) {
    const known = ARCHITECTURES.map(({ name }) => name).join(', ')
    process.stderr.write(`unknown architecture ${JSON.stringify(unknown)}, known: ${known}\n`)
    return 2
  }
  const chosen = ARCHITECTURES.filter(({ name }) => given.length === 0 || given.includes(name))
  const missing = chosen.filter(({ name }) => platformModules(ROOT, name) === undefined)
  const facts = releaseFacts(ROOT)
  rmSync(PACKAGES, { recursive: true, force: true })
  mkdirSync(PACKAGES, { recursive: true })
  const built: NamedContent[] = []
  for (const architecture of chosen.filter((each) => !missing.includes(each))) {
    for (const file of await buildPackages(ROOT, architecture, facts)) {
      writeFileSync(join(PACKAGES, file.name), file.content)
      print(`${sha256(file.content)}  ${mebibytes(file.content).padStart(6)} MiB  ${file.name}`)
      built.push(file)
    }
  }
  const sums = checksums(built)
  writeFileSync(join(PACKAGES, 'SHA256SUMS'), sums)
  const keyFile = process.env['OUTPOST_DIST_KEY_FILE']
  if (keyFile !== undefined) writeFileSync(join(PACKAGES, 'SHA256SUMS.sig'), signatureOf(sums, keyFile))
  print(
    `written to ${PACKAGES}${keyFile === undefined ? ', not signed: OUTPOST_DIST_KEY_FILE is not set' : ', signed'}`,
  )
  for (const { name } of missing) {
    process.stderr.write(`no packages for ${name}: Node for it is not installed, run "npm run dist:fetch -- ${name}"\n`)
  }
  return missing.length === 0 ? 0 : EXIT_INCOMPLETE
}

process.exitCode = await main(process.argv.slice(2))

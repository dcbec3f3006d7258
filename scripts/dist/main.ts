/**
 * Builds the packages of a release into dist/packages, without a network: for each architecture a tarball, a Debian package and a
 * bill of materials, and for all of them SHA256SUMS. The same commit gives the same bytes.
 *
 *     npm run dist [-- ARCHITECTURE …]       all architectures unless given: x64, arm64
 *
 * OUTPOST_DIST_KEY_FILE names an Ed25519 key in PEM format, which signs SHA256SUMS. Exit code 3: the packages for the architectures
 * of this list whose Node is installed were built, others were not.
 */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { stageProgram } from '../stage-program.ts'
import { type Architecture, ARCHITECTURES, platformModules } from './architecture.ts'
import { checksums, type NamedContent, sha256, signatureOf } from './checksums.ts'
import { completionScripts } from './completion.ts'
import { compress } from './compress.ts'
import { debName, debOf, type ReleaseFacts } from './deb.ts'
import { fileEntry, readTree } from './file-tree.ts'
import { manualPages } from './manual.ts'
import { releaseFacts } from './release.ts'
import { sbomOf, type Lock } from './sbom.ts'
import { tarOf } from './tar.ts'

const ROOT = resolve(import.meta.dirname, '../..')
const PACKAGES = join(ROOT, 'dist/packages')
/** Inside the checkout, so that comments of the bundle do not name a temporary directory. */
const STAGES = join(ROOT, 'node_modules/.cache/dist/stage')
const EXIT_INCOMPLETE = 3
const MEBIBYTE = 1024 ** 2
/** Largest size of a package. */
const PACKAGE_LIMIT_BYTES = 60 * MEBIBYTE

async function packagesFor(architecture: Architecture, facts: ReleaseFacts): Promise<NamedContent[]> {
  const stage = join(STAGES, architecture.name)
  rmSync(stage, { recursive: true, force: true })
  mkdirSync(stage, { recursive: true })
  stageProgram(stage, architecture.name)
  const manual = await manualPages('man/man1', facts.version, facts.releaseSeconds)
  const completion = await completionScripts()
  const lock = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as Lock
  const sbom = sbomOf({ lock, architecture: architecture.name, ...facts })
  const name = `outpost-${facts.version}-linux-${architecture.name}`
  const files = [
    ...readTree(stage, ''),
    ...manual,
    ...Object.entries(completion).map(([shell, text]) => fileEntry(`completion/outpost.${shell}`, text)),
    fileEntry('sbom.cdx.json', sbom),
  ]
  const deb = debOf({ ...facts, architecture, program: stage, root: ROOT, manual, completion, sbom })
  const built = [
    { name: `${name}.tar.zst`, content: compress(tarOf(files, `${name}/`, facts.releaseSeconds)) },
    { name: debName(facts.version, architecture), content: deb },
    { name: `${name}.cdx.json`, content: Buffer.from(sbom) },
  ]
  rmSync(stage, { recursive: true, force: true })
  const large = built.find(({ content }) => content.length > PACKAGE_LIMIT_BYTES)
  if (large)
    throw new Error(`${large.name} has ${mebibytes(large.content)} MiB, the limit is ${PACKAGE_LIMIT_BYTES / MEBIBYTE}`)
  return built
}

function mebibytes(content: Buffer): string {
  return (content.length / MEBIBYTE).toFixed(1)
}

function print(line: string): void {
  process.stdout.write(`${line}\n`)
}

async function main(given: readonly string[]): Promise<number> {
  const unknown = given.find((name) => !ARCHITECTURES.some((each) => each.name === name))
  if (unknown !== undefined) {
    process.stderr.write(`unknown architecture ${JSON.stringify(unknown)}, known: x64, arm64\n`)
    return 2
  }
  const chosen = ARCHITECTURES.filter(({ name }) => given.length === 0 || given.includes(name))
  const missing = chosen.filter(({ name }) => platformModules(ROOT, name) === undefined)
  const facts = releaseFacts(ROOT)
  rmSync(PACKAGES, { recursive: true, force: true })
  mkdirSync(PACKAGES, { recursive: true })
  const built: NamedContent[] = []
  for (const architecture of chosen.filter((each) => !missing.includes(each))) {
    for (const file of await packagesFor(architecture, facts)) {
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

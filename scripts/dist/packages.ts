/** Builds the packages of one architecture: a tarball, a Debian package and a bill of materials. */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { stageProgram } from '../stage-program.ts'
import type { Architecture } from './architecture.ts'
import type { NamedContent } from './checksums.ts'
import { completionScripts } from './completion.ts'
import { compress } from './compress.ts'
import { debName, debOf } from './deb.ts'
import { fileEntry, readTree } from './file-tree.ts'
import { manualPages } from './manual.ts'
import type { ReleaseFacts } from './release.ts'
import { sbomOf, type Lock } from './sbom.ts'
import { tarOf } from './tar.ts'

const MEBIBYTE = 1024 ** 2
/** Largest size of a package. */
export const PACKAGE_LIMIT_BYTES = 60 * MEBIBYTE

/** Throws where Node for the architecture is not installed, or where a package is too large. */
export async function buildPackages(
  root: string,
  architecture: Architecture,
  facts: ReleaseFacts,
): Promise<NamedContent[]> {
  // Inside the checkout, so that comments of the bundle do not name a temporary directory.
  const stage = join(root, 'node_modules/.cache/dist/stage', architecture.name)
  rmSync(stage, { recursive: true, force: true })
  mkdirSync(stage, { recursive: true })
  stageProgram(stage, architecture.name)
  const manifest = join(stage, 'package.json')
  writeFileSync(manifest, withVersion(readFileSync(manifest, 'utf8'), facts.version))
  const manual = await manualPages('man/man1', facts.version, facts.releaseSeconds)
  const completion = await completionScripts()
  const lock = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')) as Lock
  const sbom = sbomOf({ lock, architecture: architecture.name, ...facts })
  const name = `outpost-${facts.version}-linux-${architecture.name}`
  const files = [
    ...readTree(stage, ''),
    ...manual,
    ...Object.entries(completion).map(([shell, text]) => fileEntry(`completion/outpost.${shell}`, text)),
    fileEntry('sbom.cdx.json', sbom),
  ]
  const deb = debOf({ ...facts, architecture, program: stage, root, manual, completion, sbom })
  rmSync(stage, { recursive: true, force: true })
  const built = [
    { name: `${name}.tar.zst`, content: compress(tarOf(files, `${name}/`, facts.releaseSeconds)) },
    { name: debName(facts.version, architecture), content: deb },
    { name: `${name}.cdx.json`, content: Buffer.from(sbom) },
  ]
  const large = built.find(({ content }) => content.length > PACKAGE_LIMIT_BYTES)
  if (large) throw new Error(`${large.name} has ${large.content.length} bytes, the limit is ${PACKAGE_LIMIT_BYTES}`)
  return built
}

/** Of package.json only the version, which `outpost version` prints, can differ from the checkout's. */
function withVersion(manifest: string, version: string): string {
  return manifest.replace(/^( {2}"version": )"[^"]*"/m, `$1${JSON.stringify(version)}`)
}

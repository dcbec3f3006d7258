import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { test } from 'node:test'
import { ARCHITECTURES } from '../../scripts/dist/architecture.ts'
import { debOf } from '../../scripts/dist/deb.ts'
import { completeTree, fileEntry, readTree } from '../../scripts/dist/file-tree.ts'
import { tarOf } from '../../scripts/dist/tar.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

const ROOT = resolve(import.meta.dirname, '../..')
const RELEASE_SECONDS = 1_790_000_000

test('a tar archive has the entries in byte order with fixed owners, modes and times', (t) => {
  const directory = temporaryDirectory(t)
  const long = `${'d'.repeat(80)}/${'e'.repeat(60)}/${'f'.repeat(80)}`
  const entries = [
    fileEntry('b/program', '#!/bin/sh\n', 0o755),
    fileEntry('a', 'x'.repeat(513)),
    { path: 'b/link', type: 'symlink', target: 'program' } as const,
    fileEntry(long, 'deep'),
  ]
  const tar = tarOf(entries, 'root/', RELEASE_SECONDS)
  assert.deepEqual(tarOf(entries.toReversed(), 'root/', RELEASE_SECONDS), tar)
  const file = join(directory, 'a.tar')
  writeFileSync(file, tar)
  const listed = execFileSync('tar', ['--utc', '--full-time', '-tvf', file], { encoding: 'utf8' }).trim().split('\n')
  assert.deepEqual(
    listed.map((line) => line.replaceAll(/ +/g, ' ')),
    [
      'drwxr-xr-x 0/0 0 2026-09-21 14:13:20 root/',
      '-rw-r--r-- 0/0 513 2026-09-21 14:13:20 root/a',
      'drwxr-xr-x 0/0 0 2026-09-21 14:13:20 root/b/',
      'lrwxrwxrwx 0/0 0 2026-09-21 14:13:20 root/b/link -> program',
      '-rwxr-xr-x 0/0 10 2026-09-21 14:13:20 root/b/program',
      `drwxr-xr-x 0/0 0 2026-09-21 14:13:20 root/${'d'.repeat(80)}/`,
      `drwxr-xr-x 0/0 0 2026-09-21 14:13:20 root/${'d'.repeat(80)}/${'e'.repeat(60)}/`,
      `-rw-r--r-- 0/0 4 2026-09-21 14:13:20 root/${long}`,
    ],
  )
  execFileSync('tar', ['-xf', file, '-C', directory])
  assert.equal(readFileSync(join(directory, 'root', long), 'utf8'), 'deep')
  assert.equal(readFileSync(join(directory, 'root/a'), 'utf8').length, 513)
})

test('what a tar archive cannot hold is an error', () => {
  assert.throws(() => tarOf([fileEntry('x'.repeat(101), '')], '', 0), /longer than a tar archive allows/)
  assert.throws(() => completeTree([fileEntry('a', '1'), fileEntry('a', '2')]), /a is in the package twice/)
})

test('of the modes in a directory only the executable bit counts', (t) => {
  const directory = temporaryDirectory(t)
  writeFileSync(join(directory, 'program'), '', { mode: 0o700 })
  writeFileSync(join(directory, 'file'), '', { mode: 0o600 })
  const modes = readTree(directory, '').map((entry) => [entry.path, entry.type === 'file' ? entry.mode : undefined])
  assert.deepEqual(
    new Map(modes as [string, number][]),
    new Map([
      ['program', 0o755],
      ['file', 0o644],
    ]),
  )
})

const noDpkg = spawnSync('dpkg-deb', ['--version']).status === 0 ? false : 'needs dpkg-deb'

test('dpkg reads the Debian package: fields, configuration files, units and paths', { skip: noDpkg }, (t) => {
  const directory = temporaryDirectory(t)
  const program = join(directory, 'program')
  for (const part of ['bin', 'dist', 'systemd/nats', 'docs']) mkdirSync(join(program, part), { recursive: true })
  for (const file of ['bin/outpost', 'dist/main.js', 'systemd/install.sh', 'docs/operating.md', 'LICENSE']) {
    writeFileSync(join(program, file), file)
  }
  cpSync(join(ROOT, 'systemd/nats'), join(program, 'systemd/nats'), { recursive: true })
  const [architecture] = ARCHITECTURES
  assert.ok(architecture)
  const deb = debOf({
    version: '1.2.3',
    releaseSeconds: RELEASE_SECONDS,
    architecture,
    program,
    root: ROOT,
    manual: [fileEntry('man/man1/outpost.1', '.TH OUTPOST 1\n')],
    completion: { bash: 'bash\n', zsh: 'zsh\n', fish: 'fish\n' },
    sbom: '{}\n',
  })
  const file = join(directory, 'outpost.deb')
  writeFileSync(file, deb)
  const field = (name: string) => execFileSync('dpkg-deb', ['-f', file, name], { encoding: 'utf8' }).trim()
  assert.deepEqual([field('Package'), field('Version'), field('Architecture')], ['outpost', '1.2.3', 'amd64'])
  execFileSync('dpkg-deb', ['-R', file, join(directory, 'unpacked')])
  const content = (path: string) => readFileSync(join(directory, 'unpacked', path), 'utf8')
  assert.equal(content('DEBIAN/conffiles'), '/etc/outpost-server/server.hcl\n/etc/outpost/agent.hcl\n')
  // A file that an operator adds may come before these in the order of names.
  for (const configuration of ['etc/outpost/agent.hcl', 'etc/outpost-server/server.hcl']) {
    assert.doesNotMatch(content(configuration), /^bind_addr/m)
  }
  for (const script of ['postinst', 'prerm', 'postrm']) {
    assert.equal(spawnSync('sh', ['-n', join(directory, 'unpacked/DEBIAN', script)]).status, 0, script)
  }
  const unit = content('usr/lib/systemd/system/outpost.service')
  assert.match(unit, /^ExecStart=\/usr\/lib\/outpost\/bin\/outpost agent -config \/etc\/outpost$/m)
  assert.doesNotMatch(unit, /\/opt\/outpost/)
  const natsUnit = content('usr/share/doc/outpost/systemd/nats/outpost-nats.service')
  assert.match(natsUnit, /^Documentation=file:\/usr\/share\/doc\/outpost\/docs\/operating\/cluster\.md$/m)
  assert.equal(content('usr/lib/outpost/bin/outpost'), 'bin/outpost')
  assert.equal(content('usr/share/doc/outpost/docs/operating.md'), 'docs/operating.md')
  assert.equal(content('usr/share/man/man1/outpost.1'), '.TH OUTPOST 1\n')
  assert.equal(existsSync(join(directory, 'unpacked/usr/share/doc/outpost/systemd/install.sh')), false)
  execFileSync('md5sum', ['--quiet', '-c', 'DEBIAN/md5sums'], { cwd: join(directory, 'unpacked') })
})

/** The allocation that the unary requests were recorded against, built again from what its answers showed. */
import { chmodSync, mkdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { makePipe, makeSocket, openDirectory, patterned, put, writeManifest } from './host.ts'

export const ALLOC = 'c7c62284-c32e-9109-57b2-7c21625c03c6'
export const NODE = 'e26940d7-33c5-5e62-2d59-34c065a40f2d'
const TASKS = ['web', 'quiet', ...Array.from({ length: 12 }, (_, n) => `q${n + 1}`)]

/** Builds it; the task `never` has not started. */
export function buildTree(allocDir: string): void {
  const root = join(allocDir, ALLOC)
  mkdirSync(root)
  chmodSync(root, 0o755)
  for (const task of TASKS) openDirectory(join(root, task))
  const tasks = Object.fromEntries(TASKS.map((task) => [task, 'running' as const]))
  writeManifest(allocDir, ALLOC, { ...tasks, never: 'pending' })
  dataFiles(join(root, 'alloc/data'))
  links(join(root, 'alloc/data'), allocDir)
  logFiles(join(root, 'alloc/logs'))
  put(join(root, 'web/secrets/s.txt'), 'secret')
  put(join(root, 'web/secrets/.nomad-mount'), '')
  put(join(root, 'web/private/p.txt'), 'private')
  put(join(root, 'web/secrets-x/f.txt'), 'not secret')
  openDirectory(join(root, 'web/local'))
  mkdirSync(join(root, '..foo-in'))
  put(join(root, '..foo-in/f.txt'), 'inside')
  chmodSync(join(root, '..foo-in'), 0o755)
  put(join(allocDir, `${ALLOC}x`, 'evil.txt'), 'evil')
}

/** The socket among the secrets lives as long as its server. */
export function openSocket(allocDir: string): Promise<() => void> {
  return makeSocket(join(allocDir, ALLOC, 'web/secrets/api.sock'))
}

function dataFiles(data: string): void {
  put(join(data, 'hello.txt'), 'hello')
  put(join(data, 'empty'), '')
  put(join(data, 'closed.txt'), 'x')
  put(join(data, 'forty.txt'), '0123456789'.repeat(4))
  put(join(data, 'data.json'), '{"a":1}')
  put(join(data, 'page.html'), '<html><body onload=alert(1)>hi</body></html>')
  put(join(data, 'pic.png'), Buffer.from('iVBORw0KGgoAAAANSUhEUg==', 'base64'))
  put(join(data, 'bin.dat'), Buffer.from('AAECA//+', 'base64'))
  put(join(data, 'script.sh'), '#!/bin/sh\n', 0o4755)
  put(join(data, 'sp ace & é.txt'), 'odd name')
  put(join(data, 'big.txt'), patterned(200_000))
  put(join(data, 'exact.txt'), patterned(131_072))
  makePipe(join(data, 'fifo'), 0o644)
}

function links(data: string, allocDir: string): void {
  symlinkSync('hello.txt', join(data, 'link-in'))
  symlinkSync('/etc/hostname', join(data, 'link-out'))
  symlinkSync('/etc', join(data, 'link-dir-out'))
  symlinkSync('nowhere', join(data, 'dangling'))
  symlinkSync('loop', join(data, 'loop'))
  symlinkSync('../../web/secrets/s.txt', join(data, 'link-secret'))
  symlinkSync(join(allocDir, ALLOC, 'web/secrets/s.txt'), join(data, 'link-secret-abs'))
  symlinkSync(join(allocDir, `${ALLOC}x`, 'evil.txt'), join(data, 'link-sibling'))
}

function logFiles(logs: string): void {
  put(join(logs, 'web.stdout.0'), 'hello out\n')
  put(join(logs, 'web.stderr.0'), 'hello err\n')
  put(join(logs, 'quiet.stdout.0'), 'AAAA')
  put(join(logs, 'quiet.stdout.1'), 'BBBB')
  put(join(logs, 'quiet.stdout.2'), 'CCCC')
  put(join(logs, 'q11.stdout.0'), '<html>log</html>')
  put(join(logs, 'q12.stdout.0'), 'x\n')
  put(join(logs, 'q12.stdout.old'), 'stray')
  makePipe(join(logs, '.web.stdout.fifo'), 0o600)
  makePipe(join(logs, '.web.stderr.fifo'), 0o600)
}

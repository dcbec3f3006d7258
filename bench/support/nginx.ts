/**
 * nginx as a peer: one process that serves a directory with sendfile, if the machine has it.
 */
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { freePort, pidOf, removeDirectory, start, stop, temporaryDirectory } from './child.ts'
import { fetchWhole } from './http-socket.ts'
import type { Options } from './figure.ts'

export interface FileServer {
  readonly port: number
  readonly pid: number
  stop(): Promise<void>
}

function configText(options: { directory: string; root: string; port: number }): string {
  const { directory, root, port } = options
  const scratch = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
  return `daemon off;
master_process off;
pid ${directory}/pid;
error_log stderr error;
events { worker_connections 1024; }
http {
  access_log off;
  sendfile on;
  tcp_nopush on;
  keepalive_requests 1000000000;
  default_type application/octet-stream;
${scratch.map((name) => `  ${name}_temp_path ${directory}/${name};`).join('\n')}
  server {
    listen 127.0.0.1:${port};
    root ${JSON.stringify(root)};
  }
}
`
}

const found = () => ['nginx', '/usr/sbin/nginx'].find((name) => spawnSync(name, ['-v']).status === 0)

function command(options: Options): string | undefined {
  const name = found()
  if (name !== undefined || !options.install) return name
  spawnSync('apt-get', ['install', '-y', '--no-install-recommends', 'nginx-light'], { stdio: ['ignore', 2, 2] })
  return found()
}

/** Serves the files beneath `root`; undefined when there is no nginx. `probe` is a file in it. */
export async function startNginx(options: Options, root: string, probe: string): Promise<FileServer | undefined> {
  const name = command(options)
  if (name === undefined) {
    process.stderr.write('nginx is not on this machine (--install gets it): the peer is the raw loopback limit\n')
    return undefined
  }
  const directory = temporaryDirectory()
  const port = await freePort()
  const file = join(directory, 'nginx.conf')
  writeFileSync(file, configText({ directory, root, port }))
  const child = start(name, ['-p', directory, '-e', 'stderr', '-c', file])
  for (let tries = 0; ; tries++) {
    try {
      await fetchWhole(port, probe)
      break
    } catch (error) {
      if (tries === 100) throw new Error('nginx does not answer', { cause: error })
      await pause(20)
    }
  }
  return {
    port,
    pid: pidOf(child),
    async stop() {
      await stop(child, 'SIGKILL')
      removeDirectory(directory)
    },
  }
}

/**
 * What the daemon tells systemd about itself (sd_notify(3)), where systemd runs it.
 */
import { spawn } from 'node:child_process'
import type { Logger } from './kit/log.ts'

/** Tells systemd that the service is ready (sd_notify(3)), through its own command: Node has no datagram sockets. */
export function notifySystemd(logger: Logger): void {
  if (process.env['NOTIFY_SOCKET'] === undefined) return
  const child = spawn('systemd-notify', ['--ready', `--pid=${process.pid}`], { stdio: 'ignore' })
  child.on('error', (error) => logger.warn('systemd was not told that we are ready', { error: error.message }))
}

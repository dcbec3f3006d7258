/** The systemd end of a notify socket. */
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { eventually } from './eventually.ts'

export interface Socket {
  readonly name: string
  readonly messages: readonly string[]
  ticks(): number
}

export async function playSocket(t: TestContext, name: string): Promise<Socket> {
  const messages: string[] = []
  const child = spawn('python3', [join(import.meta.dirname, 'notify-socket.py'), name], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  t.after(() => child.kill('SIGKILL'))
  let rest = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    const lines = (rest + text).split('\n')
    rest = lines.pop() ?? ''
    for (const line of lines) messages.push(String(JSON.parse(line)))
  })
  await eventually(() => messages.shift() === 'bound')
  return { name, messages, ticks: () => messages.filter((message) => message.startsWith('WATCHDOG=1')).length }
}

/** The value of one variable in a message. */
export function assigned(message: string | undefined, name: string): string | undefined {
  return message
    ?.split('\n')
    .find((line) => line.startsWith(`${name}=`))
    ?.slice(name.length + 1)
}

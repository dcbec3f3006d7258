/**
 * The entry point: runs the command of the command line, and the agent for `outpost agent`. The modules of the agent are loaded
 * only for `outpost agent`, so that other commands start in a few dozen milliseconds.
 */
import { writeFileSync } from 'node:fs'
import { runCommand } from './cli/command.ts'

nameProcess()

// Node's default for SIGUSR1 is a debugger on 127.0.0.1:9229, by which any local user controls this process. No --disable-sigusr1: it
// would block the signal in every command that this process starts.
process.on('SIGUSR1', () => undefined)

process.exitCode = await runCommand(process.argv.slice(2), undefined, {
  async startAgent(options) {
    const [{ runAgent }, { programVersion }] = await Promise.all([
      import('./daemon/agent-process.ts'),
      import('./cli/commands/version.ts'),
    ])
    return runAgent(options, programVersion())
  },
  async beginDrill(options, signal) {
    const [{ beginDrill }, { programVersion }] = await Promise.all([
      import('./daemon/drill/drill.ts'),
      import('./cli/commands/version.ts'),
    ])
    return beginDrill(options, programVersion(), signal)
  },
  async policyChecker() {
    return (await import('./secrets/policies/policy.ts')).checkPolicy
  },
})

/** The name for `ps`, `top` and `pgrep`, which is that of the main thread: Node calls it MainThread. */
function nameProcess(): void {
  try {
    writeFileSync('/proc/self/comm', 'outpost')
  } catch {
    // Without /proc the name stays.
  }
}

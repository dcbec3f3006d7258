/**
 * The program's entry: hands the command line to the command room, and starts the agent when that is what it asks for.
 * The agent's rooms are loaded only then, so that a command starts in a few dozen milliseconds.
 */
import { runCommand } from './cli/command.ts'

process.exitCode = await runCommand(process.argv.slice(2), undefined, {
  async startAgent(options) {
    const [{ runAgent }, { programVersion }] = await Promise.all([
      import('./daemon-run.ts'),
      import('./cli/version.ts'),
    ])
    return runAgent(options, programVersion())
  },
  async beginDrill(options, signal) {
    const [{ beginDrill }, { programVersion }] = await Promise.all([
      import('./daemon-drill.ts'),
      import('./cli/version.ts'),
    ])
    return beginDrill(options, programVersion(), signal)
  },
  async policyChecker() {
    return (await import('./secrets/policies/policy.ts')).checkPolicy
  },
})

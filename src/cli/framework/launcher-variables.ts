/** What `bin/outpost` sets for this program alone: a Node program that a command runs must not put its code next to ours. */

const LIST = 'OUTPOST_LAUNCHER_SET'

/** A copy without those variables. */
export function withoutLauncherVariables(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const left = { ...env }
  for (const name of env[LIST]?.split(' ') ?? []) delete left[name]
  delete left[LIST]
  return left
}

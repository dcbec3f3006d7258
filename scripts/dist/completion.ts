/** The completion scripts of the shells, as `outpost completion` prints them. */
import { COMMAND_NAMES, loadCommands } from '../../src/cli/command-table.ts'
import { completionTree } from '../../src/cli/completion/completion-tree.ts'
import { bashCompletion, fishCompletion, zshCompletion } from '../../src/cli/completion/shell-scripts.ts'

export interface CompletionScripts {
  readonly bash: string
  readonly zsh: string
  readonly fish: string
}

export async function completionScripts(): Promise<CompletionScripts> {
  const tree = completionTree(await loadCommands(COMMAND_NAMES))
  return { bash: bashCompletion(tree), zsh: zshCompletion(tree), fish: fishCompletion(tree) }
}

/** The completion scripts for bash, zsh and fish. */
import {
  type CompletedOption,
  type Completion,
  listed,
  type CompletionNode,
  quoted,
  valuesByKind,
} from './completion-tree.ts'

/** For bash 3.2 and later, without the package bash-completion. */
export function bashCompletion(nodes: readonly CompletionNode[]): string {
  return `# Completion of outpost for bash. Load it with: source <(outpost completion bash)
_outpost_files() {
  local IFS=$'\\n'
  compopt -o filenames 2>/dev/null
  COMPREPLY=($(compgen -f -- "$1"))
}
_outpost() {
  local current=\${COMP_WORDS[COMP_CWORD]} before=\${COMP_WORDS[COMP_CWORD - 1]} prefix='' next='' index
  COMPREPLY=()
  for ((index = 1; index < COMP_CWORD; index++)); do
    next="\${prefix:+$prefix }\${COMP_WORDS[index]}"
    case $next in
      ${nodes
        .filter(({ words }) => words !== '')
        .map(({ words }) => quoted(words))
        .join(' | ')}) prefix=$next ;;
      *) break ;;
    esac
  done
  [[ $before != --?* ]] || before=\${before#-}
  case "$prefix $before" in
${bashValues(nodes)}  esac
  if [[ $current == -* ]]; then
    case $prefix in
${bashCases(nodes, ({ options }) => `COMPREPLY=($(compgen -W ${quoted(options.map(({ name }) => `-${name}`).join(' '))} -- "$current"))`)}    esac
    return
  fi
  case $prefix in
${bashOperands(nodes)}  esac
}
complete -F _outpost outpost
`
}

/** Completion the value of an option. */
function bashValues(nodes: readonly CompletionNode[]): string {
  return valuesByKind(nodes)
    .map(({ patterns, value }) => `    ${patterns}) ${bashReply(value)}; return ;;\n`)
    .join('')
}

function bashCases(nodes: readonly CompletionNode[], body: (node: CompletionNode) => string): string {
  return nodes
    .filter(({ options }) => options.length > 0)
    .map((node) => `      ${quoted(node.words)}) ${body(node)} ;;\n`)
    .join('')
}

function bashOperands(nodes: readonly CompletionNode[]): string {
  return nodes
    .map(({ words, next, operand }) => {
      const completes = next.length > 0 ? next.map(({ word }) => word) : operand
      return completes === 'nothing' ? '' : `    ${quoted(words)}) ${bashReply(completes)} ;;\n`
    })
    .join('')
}

function bashReply(completes: Completion): string {
  if (completes === 'nothing') return ':'
  if (completes === 'files') return '_outpost_files "$current"'
  return `COMPREPLY=($(compgen -W ${quoted(listed(completes))} -- "$current"))`
}

/** Sourced, or stored as `_outpost` in a directory of `fpath`. */
export function zshCompletion(nodes: readonly CompletionNode[]): string {
  return `#compdef outpost
# Completion of outpost for zsh. Load it with: source <(outpost completion zsh)
_outpost() {
  local prefix='' next='' before=\${words[CURRENT - 1]} index
  local -a found
  for ((index = 2; index < CURRENT; index++)); do
    next="\${prefix:+$prefix }\${words[index]}"
    case $next in
      (${nodes
        .filter(({ words }) => words !== '')
        .map(({ words }) => quoted(words))
        .join(' | ')}) prefix=$next ;;
      (*) break ;;
    esac
  done
  [[ $before != --?* ]] || before=\${before#-}
  case "$prefix $before" in
${zshValues(nodes)}  esac
  if [[ \${words[CURRENT]} == -* ]]; then
    case $prefix in
${zshOptions(nodes)}    esac
    _describe -o option found
    return
  fi
  case $prefix in
${zshOperands(nodes)}  esac
}
if [[ $funcstack[1] == _outpost ]]; then _outpost "$@"; else compdef _outpost outpost; fi
`
}

function zshValues(nodes: readonly CompletionNode[]): string {
  return valuesByKind(nodes)
    .map(({ patterns, value }) => `    (${patterns}) ${zshReply(value)}; return ;;\n`)
    .join('')
}

function zshOptions(nodes: readonly CompletionNode[]): string {
  return nodes
    .filter((node) => node.options.length > 0)
    .map((node) => {
      const all = node.options.map(({ name, help }) => zshDescribed(`-${name}`, help))
      return `      (${quoted(node.words)}) found=(${all.join(' ')}) ;;\n`
    })
    .join('')
}

function zshOperands(nodes: readonly CompletionNode[]): string {
  return nodes
    .map(({ words, next, operand }) => {
      if (next.length > 0) {
        const all = next.map(({ word, help }) => zshDescribed(word, help))
        return `    (${quoted(words)}) found=(${all.join(' ')}); _describe command found ;;\n`
      }
      return operand === 'nothing' ? '' : `    (${quoted(words)}) ${zshReply(operand)} ;;\n`
    })
    .join('')
}

/** `word:description`; a colon in the word is escaped. */
function zshDescribed(word: string, help: string): string {
  return quoted(`${word.replaceAll(':', String.raw`\:`)}:${help}`)
}

function zshReply(completes: Completion): string {
  if (completes === 'nothing') return ':'
  return completes === 'files' ? '_files' : `compadd -- ${listed(completes)}`
}

/** Sourced, or stored as `outpost.fish` in the directory for completions. */
export function fishCompletion(nodes: readonly CompletionNode[]): string {
  const known = nodes.filter(({ words }) => words !== '').map(({ words }) => fishWord(words))
  return `# Completion of outpost for fish. Load it with: outpost completion fish | source
function __outpost_prefix
    set -l prefix ''
    set -l line (commandline -opc)
    for next in $line[2..-1]
        set -l longer (string trim -- "$prefix $next")
        contains -- "$longer" ${known.join(' ')}; or break
        set prefix "$longer"
    end
    test "$prefix" = "$argv[1]"
end
complete -c outpost -f
${nodes.map(fishLines).join('')}`
}

function fishLines({ words, next, options, operand }: CompletionNode): string {
  const here = `complete -c outpost -n ${fishWord(`__outpost_prefix ${fishWord(words)}`)}`
  const following = next.map((one) => `${here} -a ${fishWord(one.word)} -d ${fishWord(one.help)}\n`)
  const operands =
    operand === 'nothing' ? [] : [operand === 'files' ? `${here} -F\n` : `${here} -a ${fishWord(listed(operand))}\n`]
  return [...following, ...operands, ...options.map((option) => `${here} ${fishOption(option)}\n`)].join('')
}

function fishOption({ name, help, value }: CompletedOption): string {
  const flag = name.length === 1 ? `-s ${name}` : `-o ${name}`
  const takes = value === undefined ? '' : value === 'files' ? ' -r -F' : ' -x'
  const choices = typeof value === 'object' ? ` -a ${fishWord(listed(value))}` : ''
  return `${flag}${takes}${choices} -d ${fishWord(help)}`
}

/** Quotes a text as one word of fish: backslash and quote are escaped inside single quotes. */
function fishWord(text: string): string {
  return `'${text.replaceAll(/[\\']/g, String.raw`\$&`)}'`
}

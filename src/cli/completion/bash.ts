/** The completion script for bash. */
import { type Completes, listed, type Place, quoted, valuesByKind } from './tree.ts'

/** Works in bash 3.2 and later; needs no package of completions. */
export function bashCompletion(places: readonly Place[]): string {
  return `# Completion of outpost for bash. Load it with: source <(outpost completion bash)
_outpost_files() {
  local IFS=$'\\n'
  compopt -o filenames 2>/dev/null
  COMPREPLY=($(compgen -f -- "$1"))
}
_outpost() {
  local current=\${COMP_WORDS[COMP_CWORD]} before=\${COMP_WORDS[COMP_CWORD - 1]} place='' next='' index
  COMPREPLY=()
  for ((index = 1; index < COMP_CWORD; index++)); do
    next="\${place:+$place }\${COMP_WORDS[index]}"
    case $next in
      ${places
        .filter(({ words }) => words !== '')
        .map(({ words }) => quoted(words))
        .join(' | ')}) place=$next ;;
      *) break ;;
    esac
  done
  [[ $before != --?* ]] || before=\${before#-}
  case "$place $before" in
${values(places)}  esac
  if [[ $current == -* ]]; then
    case $place in
${cases(places, ({ options }) => `COMPREPLY=($(compgen -W ${quoted(options.map(({ name }) => `-${name}`).join(' '))} -- "$current"))`)}    esac
    return
  fi
  case $place in
${operands(places)}  esac
}
complete -F _outpost outpost
`
}

/** What follows an option that takes a value. */
function values(places: readonly Place[]): string {
  return valuesByKind(places)
    .map(({ patterns, value }) => `    ${patterns}) ${reply(value)}; return ;;\n`)
    .join('')
}

function cases(places: readonly Place[], body: (place: Place) => string): string {
  return places
    .filter(({ options }) => options.length > 0)
    .map((place) => `      ${quoted(place.words)}) ${body(place)} ;;\n`)
    .join('')
}

function operands(places: readonly Place[]): string {
  return places
    .map(({ words, next, operand }) => {
      const completes = next.length > 0 ? next.map(({ word }) => word) : operand
      return completes === 'nothing' ? '' : `    ${quoted(words)}) ${reply(completes)} ;;\n`
    })
    .join('')
}

function reply(completes: Completes): string {
  if (completes === 'nothing') return ':'
  if (completes === 'files') return '_outpost_files "$current"'
  return `COMPREPLY=($(compgen -W ${quoted(listed(completes))} -- "$current"))`
}

/** The command palette: views, and the commands that the current view offers. */
import { signal } from '@preact/signals'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { Dialog } from '../components/dialog.tsx'
import { useKeys } from './keys.ts'
import { navigate } from './location.ts'
import type { Section } from './sections.ts'

export interface PaletteCommand {
  readonly title: string
  /** What it belongs to, such as the name of the view. */
  readonly group: string
  /** Other words for which it is found. */
  readonly keywords?: string
  readonly run: () => void
  /** True to list it after the commands of the view and the views. */
  readonly isLast?: boolean
}

const viewCommands = signal<readonly PaletteCommand[]>([])
const SHOWN_MAX = 50

/** Commands that are in the palette while the component is mounted. `commands` is kept until a value of `inputs` changes. */
export function useCommands(commands: readonly PaletteCommand[], inputs: readonly unknown[]): void {
  useEffect(() => {
    viewCommands.value = [...viewCommands.value, ...commands]
    return () => {
      viewCommands.value = viewCommands.value.filter((each) => !commands.includes(each))
    }
  }, inputs)
}

/** Whether the letters of `wanted` occur in `title` in this order. */
function matches(title: string, wanted: string): boolean {
  let from = 0
  const text = title.toLowerCase()
  for (const letter of wanted.toLowerCase().replaceAll(' ', '')) {
    from = text.indexOf(letter, from) + 1
    if (from === 0) return false
  }
  return true
}

/** Commands with the text, or with a keyword that begins with it, come before those with the letters only; otherwise the order stays. */
function rankOf({ group, keywords = '', title }: PaletteCommand, wanted: string): number {
  const text = wanted.trim().toLowerCase()
  if (`${title} ${group}`.toLowerCase().includes(text)) return 0
  return keywords.split(' ').some((word) => word.startsWith(text)) ? 0 : 1
}

interface PaletteProps {
  readonly sections: readonly Section[]
  readonly close: () => void
}

export function Palette({ close, sections }: PaletteProps) {
  const [wanted, setWanted] = useState('')
  const [selected, setSelected] = useState(0)
  const list = useRef<HTMLUListElement>(null)
  const all = useMemo(
    () => [
      ...viewCommands.value.filter(({ isLast }) => !isLast),
      ...sections.map(({ group, keywords = '', path, title }) => ({
        title: `Go to ${title}`,
        group,
        keywords,
        run: () => navigate(path),
      })),
      ...viewCommands.value.filter(({ isLast }) => isLast),
    ],
    [sections, viewCommands.value],
  )
  const found = all
    .filter((each) => rankOf(each, wanted) === 0 || matches(`${each.title} ${each.group}`, wanted))
    .toSorted((one, other) => rankOf(one, wanted) - rankOf(other, wanted))
    .slice(0, SHOWN_MAX)
  const current = Math.min(selected, found.length - 1)
  useEffect(() => list.current?.children[current]?.scrollIntoView({ block: 'nearest' }), [current])

  const run = (command: PaletteCommand | undefined) => {
    if (!command) return
    close()
    command.run()
  }
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === 'Enter') run(found[current])
    else if (event.key === 'ArrowDown') setSelected(Math.min(current + 1, found.length - 1))
    else if (event.key === 'ArrowUp') setSelected(Math.max(current - 1, 0))
    else return
    event.preventDefault()
  }
  return (
    <Dialog title="Commands" close={close} class="palette">
      <PaletteKeys close={close} />
      <input
        type="text"
        role="combobox"
        aria-label="Command"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={found.length > 0 ? `palette-${current}` : undefined}
        placeholder="Type a command or a view"
        value={wanted}
        onInput={(event) => {
          setWanted(event.currentTarget.value)
          setSelected(0)
        }}
        onKeyDown={onKeyDown}
        autoFocus
      />
      <ul id="palette-list" role="listbox" aria-label="Commands" ref={list}>
        {found.map((command, index) => (
          <li
            key={`${command.group}/${command.title}`}
            id={`palette-${index}`}
            role="option"
            aria-selected={index === current}
            onClick={() => run(command)}
          >
            <span>{command.title}</span>
            <span class="muted">{command.group}</span>
          </li>
        ))}
      </ul>
      {found.length === 0 && <p class="muted">No command matches.</p>}
    </Dialog>
  )
}

/** In the dialog, because other keys have no effect while it is open. */
function PaletteKeys({ close }: Pick<PaletteProps, 'close'>) {
  useKeys('Commands', [{ keys: 'Mod+k', label: '', run: close, inFields: true }])
  return null
}

/**
 * The keyboard: bindings of the page and of the current view, and sequences such as `g l`. `?` lists those that are active. While a text
 * field has the focus, only bindings with `inFields` and those with Ctrl or ⌘ apply. While a modal dialog is open, only its own bindings do.
 */
import { signal } from '@preact/signals'
import { createContext } from 'preact'
import { useContext, useLayoutEffect, useRef } from 'preact/hooks'

export interface KeyBinding {
  /** A key (`/`, `n`, `ArrowDown`, `Escape`), a sequence (`g l`), or `Mod+k` for Ctrl or ⌘ with a key. */
  readonly keys: string
  /** What it does, for the list of keys. */
  readonly label: string
  readonly run: (event: KeyboardEvent) => void
  readonly inFields?: boolean
}

export interface KeyGroup {
  readonly title: string
  readonly bindings: readonly KeyBinding[]
  readonly isOfDialog: boolean
}

/** True in a modal dialog. */
export const InDialog = createContext(false)

/** Time for the second key of a sequence. */
const SEQUENCE_MS = 1200

/** Active groups; the last one that has a key is used, so a view or a dialog can replace a key of the page. */
export const keyGroups = signal<readonly KeyGroup[]>([])

let pending: { readonly key: string; readonly atMs: number } | undefined

function nameOf(event: KeyboardEvent): string {
  return event.ctrlKey || event.metaKey ? `Mod+${event.key.toLowerCase()}` : event.key
}

function isField(target: Element | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
}

/** Space and Enter activate the button or link that has the focus, and Escape closes an open dialog. */
function isOfBrowser(event: KeyboardEvent): boolean {
  if (event.key === 'Escape') return document.querySelector('dialog[open]') !== null
  if (event.key !== ' ' && event.key !== 'Enter') return false
  return event.target instanceof Element && event.target.matches('button, a[href], summary')
}

/** What is behind a modal dialog must not change: the user does not see it, or would lose what the dialog asks. */
function reachableGroups(): readonly KeyGroup[] {
  const isDialogOpen = document.querySelector('dialog:modal') !== null
  return isDialogOpen ? keyGroups.value.filter(({ isOfDialog }) => isOfDialog) : keyGroups.value
}

function bindingOf(keys: string, isInField: boolean): KeyBinding | undefined {
  for (const { bindings } of reachableGroups().toReversed()) {
    const found = bindings.find((binding) => binding.keys === keys)
    if (found) return isInField && !found.inFields && !keys.startsWith('Mod+') ? undefined : found
  }
  return undefined
}

function isStartOfSequence(key: string): boolean {
  return reachableGroups().some(({ bindings }) => bindings.some(({ keys }) => keys.startsWith(`${key} `)))
}

window.addEventListener('keydown', (event) => {
  if (event.defaultPrevented || event.altKey || event.isComposing) return
  if (isOfBrowser(event)) return
  // Not the target: a search field hands over the arrow that leaves it.
  const isInField = isField(document.activeElement)
  const key = nameOf(event)
  const first = pending && performance.now() - pending.atMs < SEQUENCE_MS && !isInField ? pending.key : undefined
  pending = undefined
  const binding = (first && bindingOf(`${first} ${key}`, isInField)) || bindingOf(key, isInField)
  if (binding) {
    event.preventDefault()
    binding.run(event)
  } else if (!isInField && isStartOfSequence(key)) pending = { key, atMs: performance.now() }
})

/** Bindings that are active while the component is mounted. `bindings` may change with each rendering. */
export function useKeys(title: string, bindings: readonly KeyBinding[]): void {
  const isOfDialog = useContext(InDialog)
  const current = useRef(bindings)
  current.current = bindings
  const names = bindings.map(({ keys }) => keys).join('\0')
  // At once: a user who sees a view, or a menu, uses its keys.
  useLayoutEffect(() => {
    const active = names === '' ? [] : names.split('\0')
    const labelOf = (keys: string) => current.current.find((each) => each.keys === keys)
    const group: KeyGroup = {
      title,
      isOfDialog,
      bindings: active.map((keys) => ({
        keys,
        label: labelOf(keys)?.label ?? '',
        inFields: labelOf(keys)?.inFields,
        run: (event) => labelOf(keys)?.run(event),
      })),
    }
    keyGroups.value = [...keyGroups.value, group]
    return () => {
      keyGroups.value = keyGroups.value.filter((each) => each !== group)
    }
  }, [title, names, isOfDialog])
}

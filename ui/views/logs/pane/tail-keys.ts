/** The keys of a tail, as in `less` and lnav. */
import type { KeyBinding } from '../../../app/keys.ts'
import type { TailController } from './tail-controller.ts'

export interface TailToggles {
  readonly wrap: () => void
  readonly time: () => void
  readonly errors: () => void
  readonly filter: () => void
  readonly endSearch: () => void
}

export function tailKeys(tail: TailController, toggles: TailToggles): readonly KeyBinding[] {
  return [
    { keys: 'f', label: 'Follow new lines', run: () => tail.follow() },
    { keys: 'p', label: 'Pause, or follow again', run: () => tail.follow(!tail.isFollowing) },
    { keys: 'G', label: 'End: follow new lines', run: () => tail.follow() },
    { keys: 'End', label: '', run: () => tail.follow() },
    { keys: 'g g', label: 'First line of the view', run: () => tail.toStart() },
    { keys: 'Home', label: '', run: () => tail.toStart() },
    { keys: ' ', label: 'Page down', run: () => tail.page(1) },
    { keys: 'PageDown', label: '', run: () => tail.page(1) },
    { keys: 'b', label: 'Page up', run: () => tail.page(-1) },
    { keys: 'PageUp', label: '', run: () => tail.page(-1) },
    { keys: 'j', label: 'Next line', run: () => tail.moveSelection(1) },
    { keys: 'k', label: 'Previous line', run: () => tail.moveSelection(-1) },
    { keys: 'ArrowDown', label: '', run: () => tail.moveSelection(1) },
    { keys: 'ArrowUp', label: '', run: () => tail.moveSelection(-1) },
    { keys: 'Enter', label: 'Open or close the line', run: () => tail.toggle() },
    {
      keys: 'Escape',
      label: 'Close the line, select none, end the search',
      run: () => tail.escape() || toggles.endSearch(),
    },
    { keys: 'n', label: 'Next match', run: () => tail.find(1) },
    { keys: 'N', label: 'Previous match', run: () => tail.find(-1) },
    { keys: 'e', label: 'Find errors', run: toggles.errors },
    { keys: '&', label: 'Filter the whole log', run: toggles.filter },
    { keys: 'Mod+enter', label: 'Filter the whole log, also in Find', run: toggles.filter },
    { keys: 'w', label: 'Wrap long lines', run: toggles.wrap },
    { keys: 't', label: 'Show times', run: toggles.time },
  ]
}

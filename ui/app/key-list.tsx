import { type KeyBinding, keyGroups, useKeys } from './keys.ts'

function shownKey(key: string): string {
  return key.replace('Mod+', 'Ctrl/⌘ ').replace('enter', 'Enter').replace('Arrow', '')
}

/** A key, or the keys of a sequence. */
function shownKeys(keys: string): string {
  return keys === ' ' ? 'Space' : keys.split(' ').map(shownKey).join(' then ')
}

/** The active keys by title: the view first. A key that a view replaces is listed with the view only. */
function activeKeys(): ReadonlyMap<string, readonly KeyBinding[]> {
  const seen = new Set<string>()
  const active = new Map<string, KeyBinding[]>()
  for (const { bindings, title } of keyGroups.value.toReversed()) {
    const own = bindings.filter(({ keys, label }) => label !== '' && !seen.has(keys))
    for (const { keys } of own) seen.add(keys)
    if (own.length > 0) active.set(title, [...(active.get(title) ?? []), ...own])
  }
  return active
}

export function KeyList({ close }: { readonly close: () => void }) {
  useKeys('Keys', [{ keys: '?', label: '', run: close }])
  return (
    <div class="key-list">
      {[...activeKeys()].map(([title, bindings]) => (
        <section key={title}>
          <h3>{title}</h3>
          <dl>
            {bindings.map(({ keys, label }) => (
              <div key={keys}>
                <dt>
                  <kbd>{shownKeys(keys)}</kbd>
                </dt>
                <dd>{label}</dd>
              </div>
            ))}
          </dl>
        </section>
      ))}
    </div>
  )
}

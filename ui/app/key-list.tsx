import { keyGroups } from './keys.ts'

/** In this order: the space of a sequence is replaced before others are added. */
const SHOWN: Readonly<Record<string, string>> = { ' ': ' then ', 'Mod+': 'Ctrl/⌘ ', Arrow: '' }

function shownKeys(keys: string): string {
  if (keys === ' ') return 'Space'
  return Object.entries(SHOWN).reduce((text, [from, to]) => text.replaceAll(from, to), keys)
}

/** The active keys, by view. A key that a view replaces is listed with the view only. */
export function KeyList() {
  const groups = keyGroups.value.toReversed()
  const seen = new Set<string>()
  return (
    <div class="key-list">
      {groups.map(({ bindings, title }) => {
        const own = bindings.filter(({ keys, label }) => label !== '' && !seen.has(keys))
        for (const { keys } of own) seen.add(keys)
        if (own.length === 0) return null
        return (
          <section key={title}>
            <h3>{title}</h3>
            <dl>
              {own.map(({ keys, label }) => (
                <div key={keys}>
                  <dt>
                    <kbd>{shownKeys(keys)}</kbd>
                  </dt>
                  <dd>{label}</dd>
                </div>
              ))}
            </dl>
          </section>
        )
      })}
    </div>
  )
}

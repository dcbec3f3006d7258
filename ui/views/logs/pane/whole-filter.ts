/** From the search in the lines of the page to the filter, which the host runs on the whole log. */
import { address, setQuery } from '../../../app/location.ts'
import { filterOfSearch } from '../model/text-pattern.ts'
import { START_PARAMETERS } from './tail-query.ts'

/** What the user searches in the lines of the page. */
export function searchOf(query: URLSearchParams): { readonly text: string; readonly isExpression: boolean } {
  return { text: query.get('find') ?? '', isExpression: query.get('regex') === '1' }
}

/**
 * Filters the whole log for the search, which stays, so that its matches are marked. Returns false if there is no search: then the user must
 * enter a filter.
 */
export function filterWholeLog(): boolean {
  const { isExpression, text } = searchOf(address.value.query)
  if (text === '') return false
  setQuery({ ...START_PARAMETERS, grep: filterOfSearch(text, isExpression), invert: undefined })
  return true
}

/** After the current event: a dialog that closes returns the focus first. */
export function focusFilter(): void {
  setTimeout(() => {
    const field = document.querySelector('.log-grep')
    if (!(field instanceof HTMLInputElement)) return
    field.focus()
    field.select()
  })
}
